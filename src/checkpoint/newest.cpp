#include "checkpoint/newest.h"

#include <algorithm>

#include "checkpoint/catalog.h"
#include "checkpoint/inspect.h"

namespace sauropod::checkpoint {
namespace {

// Goes through the checkpoints of a store, from the newest to older ones. On rank 0.
class Search {
 public:
  explicit Search(const storage::ObjectStore& store) : store_(store) {}

  // {prefix, bytes of the manifest} of the next one whose manifest is valid and whose files have their
  // sizes; nothing when there are no more.
  std::vector<std::string> next() {
    while (true) {
      if (left_.empty() && !list_newer()) return {};
      const Listed listed = std::move(left_.back());
      left_.pop_back();
      current_ = listed.step;
      if (!listed.committed()) continue;
      try {
        const std::string bytes = read_manifest(store_, listed);
        check_manifest(store_, listed, bytes);
        return {listed.prefix, bytes};
      } catch (const DamageError& error) {
        complain(error.what());
      }
    }
  }
  // Why the current one can't be used.
  void complain(const std::string& why) {
    complaints_.push_back(
        fmt::format("the checkpoint of step {} can't be used: {}", current_, why));
  }
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  // While checkpoints were looked at, a run may have written a newer one and removed them: begins
  // anew if there is one that was not there before.
  bool list_newer() {
    left_ = list_steps(store_);
    if (left_.empty() || left_.back().step <= newest_) {
      left_.clear();
      return false;
    }
    newest_ = left_.back().step;
    complaints_.clear();
    return true;
  }

  const storage::ObjectStore& store_;
  std::vector<Listed> left_;  // by step
  int64_t newest_ = -1;
  int64_t current_ = -1;
  std::vector<std::string> complaints_;
};

// On rank 0: whether all have loaded ("+") or someone has found damage ("").
std::string verdict(const Peers& peers, const std::vector<std::string>& said, Search& search) {
  for (size_t rank = 0; rank < said.size(); ++rank)
    if (said[rank].starts_with('-'))
      throw base::Error(said_by(peers, rank, std::string_view(said[rank]).substr(1)));
  std::vector<std::string> damages;  // ranks that read the same box find the same
  for (const std::string& text : said)
    if (text.starts_with('~') && std::find(damages.begin(), damages.end(), text) == damages.end())
      damages.push_back(text);
  for (const std::string& text : damages) search.complain(text.substr(1));
  return damages.empty() ? "+" : "";
}

}  // namespace

std::optional<Reader> load_newest(std::shared_ptr<const storage::ObjectStore> store, Peers& peers,
                                  const std::function<void(const Reader&)>& load,
                                  std::vector<std::string>* complaints) {
  Search search(*store);
  std::optional<Reader> reader;
  while (true) {
    const auto chosen = unpack(decide(peers, [&] { return pack(search.next()); }));
    if (chosen.empty()) break;
    std::string said = "+";
    std::exception_ptr error;
    try {
      const std::string& prefix = chosen[0];
      reader.emplace(store, prefix,
                     Manifest::parse(chosen[1], store->describe(prefix + std::string(manifest_name))));
      load(*reader);
    } catch (const DamageError& damage) {
      said = std::string("~") + damage.what();
    } catch (...) {
      error = std::current_exception();
      said = "-" + text_of(error);
    }
    const std::vector<std::string> all = peers.gather(std::move(said));
    std::string agreed;
    try {
      agreed = decide(peers, [&] { return verdict(peers, all, search); });
    } catch (...) {
      if (error) std::rethrow_exception(error);
      throw;
    }
    if (!agreed.empty()) break;
    reader.reset();
  }
  const auto found = unpack(peers.broadcast(pack(search.complaints())));
  if (complaints != nullptr) complaints->insert(complaints->end(), found.begin(), found.end());
  return reader;
}

std::optional<Reader> load_newest(const storage::ObjectStore& store, Peers& peers,
                                  const std::function<void(const Reader&)>& load,
                                  std::vector<std::string>* complaints) {
  return load_newest(std::shared_ptr<const storage::ObjectStore>(&store, [](const auto*) {}), peers,
                     load, complaints);
}

namespace {

std::optional<Reader> find_newest(std::shared_ptr<const storage::ObjectStore> store,
                                  std::vector<std::string>* complaints, Check check) {
  Alone alone;
  const auto look = [check](const Reader& reader) {
    if (check == Check::hashes) reader.verify();
  };
  return load_newest(std::move(store), alone, look, complaints);
}

}  // namespace

std::optional<Reader> Reader::newest_intact(const storage::ObjectStore& store,
                                            std::vector<std::string>* complaints, Check check) {
  return find_newest(std::shared_ptr<const storage::ObjectStore>(&store, [](const auto*) {}),
                     complaints, check);
}

Reader Reader::open(const std::string& path, std::vector<std::string>* complaints, Check check) {
  const Place place = locate(path);
  if (place.single) return Reader(place.store, "", check);
  std::vector<std::string> own;
  std::vector<std::string>& said = complaints != nullptr ? *complaints : own;
  const size_t before = said.size();
  std::optional<Reader> reader = find_newest(place.store, &said, check);
  if (reader) return *reader;
  const std::string folder = place.store->describe("");
  if (said.size() == before)
    base::fail("{} holds no checkpoint (a folder like step-000001000 with a manifest.json in it)",
               folder);
  base::fail("{} holds no intact checkpoint: {}", folder, said[before]);
}

}  // namespace sauropod::checkpoint

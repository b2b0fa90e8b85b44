#include "checkpoint/reader.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>

#include "base/hash.h"
#include "base/threads.h"
#include "checkpoint/catalog.h"

namespace sauropod::checkpoint {
namespace {

constexpr uint64_t verify_chunk = uint64_t{4} << 20;
// Below this many bytes a read is not worth a second thread.
constexpr uint64_t parallel_threshold = uint64_t{4} << 20;

// A byte range with a hash of its own.
struct Piece {
  std::string file;
  uint64_t begin = 0, end = 0;
  const std::string* hash = nullptr;
  std::string content;                   // what lies there, for messages
  std::atomic<bool>* verified = nullptr;
};

std::string title_of(const StoredTensor& tensor, const StoredBox& box) {
  return fmt::format("{} of {} {}", tensor.kind, tensor.parameter, to_text(box.region));
}

std::string damage_text(const std::string& file, uint64_t begin, uint64_t end,
                        const std::string& content) {
  return fmt::format("{} is damaged: bytes {} to {} ({}) are not those that were written", file,
                     begin, end, content);
}

bool is_damage(const storage::StoreError& error) {
  return error.cause() == storage::Cause::missing || error.cause() == storage::Cause::damaged;
}

}  // namespace

struct Reader::State {
  std::shared_ptr<const storage::ObjectStore> store;
  std::string prefix;
  Manifest manifest;
  // One flag a stored box, in the order of tensors and boxes; first_box[t] is where tensor t begins.
  std::vector<std::atomic<bool>> verified;
  std::vector<size_t> first_box;

  std::string describe(size_t file) const {
    return store->describe(prefix + manifest.files[file].name);
  }
  std::atomic<bool>& flag(const StoredTensor& tensor, size_t box) {
    return verified[first_box[static_cast<size_t>(&tensor - manifest.tensors.data())] + box];
  }
  // Reads bytes of a file; what the store can't give is damage.
  void fetch(const std::string& name, uint64_t begin, uint64_t size, void* out) const {
    try {
      store->read(prefix + name, begin, size, out);
    } catch (const storage::StoreError& error) {
      if (!is_damage(error)) throw;
      throw DamageError(fmt::format("{} (bytes {} to {} were asked for)", error.what(), begin,
                                    begin + size));
    }
  }
  std::vector<Piece> pieces();
  // Says what is wrong with a piece, if anything.
  std::optional<std::string> damage_of(const Piece& piece) const;
};

std::vector<Piece> Reader::State::pieces() {
  std::vector<Piece> result;
  const std::string& tokenizer = manifest.tokenizer_name;
  result.push_back({tokenizer, 0, manifest.tokenizer_bytes, &manifest.tokenizer_hash,
                    "the tokenizer", nullptr});
  for (const DataFile& file : manifest.files)
    result.push_back({file.name, 0, file.header_bytes, &file.header_hash, "header", nullptr});
  for (const StoredTensor& tensor : manifest.tensors)
    for (size_t i = 0; i < tensor.boxes.size(); ++i) {
      const StoredBox& box = tensor.boxes[i];
      result.push_back({manifest.files[box.file].name, box.begin, box.end, &box.hash,
                        title_of(tensor, box), &flag(tensor, i)});
    }
  std::sort(result.begin(), result.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
  return result;
}

std::optional<std::string> Reader::State::damage_of(const Piece& piece) const {
  base::Hasher hasher;
  std::vector<char> buffer(std::min(verify_chunk, piece.end - piece.begin));
  try {
    for (uint64_t at = piece.begin; at < piece.end; at += buffer.size()) {
      const size_t size = std::min<uint64_t>(buffer.size(), piece.end - at);
      store->read(prefix + piece.file, at, size, buffer.data());
      hasher.update(buffer.data(), size);
    }
  } catch (const storage::StoreError& error) {
    if (!is_damage(error)) throw;
    return error.what();
  }
  if (hasher.digest() != *piece.hash)
    return damage_text(store->describe(prefix + piece.file), piece.begin, piece.end,
                       piece.content);
  if (piece.verified != nullptr) piece.verified->store(true);
  return std::nullopt;
}

// Where read() puts what: the part of the stored box, and the box asked for.
struct Reader::Part {
  Region part;
  const Region& target_box;
  Element type;
  void* out;
};

Reader::Reader(std::shared_ptr<const storage::ObjectStore> store, const std::string& prefix,
               Manifest manifest)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->prefix = prefix;
  state_->manifest = std::move(manifest);
  size_t boxes = 0;
  for (const StoredTensor& tensor : state_->manifest.tensors) {
    state_->first_box.push_back(boxes);
    boxes += tensor.boxes.size();
  }
  state_->verified = std::vector<std::atomic<bool>>(boxes);
}

Reader::Reader(std::shared_ptr<const storage::ObjectStore> store, const std::string& prefix,
               Check check)
    : Reader(store, prefix, load_manifest(*store, list_one(*store, prefix))) {
  if (check == Check::hashes) verify();
}

Reader::Reader(const storage::ObjectStore& store, const std::string& prefix, Check check)
    : Reader(std::shared_ptr<const storage::ObjectStore>(&store, [](const auto*) {}), prefix,
             check) {}

Reader::Reader(const storage::ObjectStore& store, int64_t step, Check check)
    : Reader(store, prefix_of_step(step), check) {}

const Manifest& Reader::manifest() const { return state_->manifest; }

std::string Reader::path() const {
  std::string path = state_->store->describe(state_->prefix);
  if (path.ends_with('/')) path.pop_back();
  return path;
}

bool Reader::has(const std::string& parameter, const std::string& kind) const {
  return manifest().find(parameter, kind) != nullptr;
}

void Reader::check_hash(const StoredTensor& tensor, size_t box_index, const void* bytes) const {
  const StoredBox& box = tensor.boxes[box_index];
  if (base::hash128(bytes, box.end - box.begin) != box.hash)
    throw DamageError(damage_text(state_->describe(box.file), box.begin, box.end,
                                  title_of(tensor, box)));
  state_->flag(tensor, box_index).store(true);
}

void Reader::read_part(const StoredTensor& tensor, size_t box_index, const Part& part) const {
  const StoredBox& box = tensor.boxes[box_index];
  const Element type = parse_element(tensor.dtype);
  const bool verified = state_->flag(tensor, box_index).load();
  // What is read in one piece: the part alone if it is one run and nothing else needs hashing, else
  // the whole box.
  const bool alone = is_contiguous(box.region, part.part) && (verified || part.part == box.region);
  const Region& piece = alone ? part.part : box.region;
  const size_t size = static_cast<size_t>(piece.elements()) * element_size(type);
  const uint64_t begin =
      box.begin + static_cast<uint64_t>(first_element(box.region, piece)) * element_size(type);
  if (alone && type == part.type && is_contiguous(part.target_box, part.part)) {
    char* target = static_cast<char*>(part.out) +
                   static_cast<size_t>(first_element(part.target_box, part.part)) *
                       element_size(type);
    state_->fetch(manifest().files[box.file].name, begin, size, target);
    if (!verified) check_hash(tensor, box_index, target);
    return;
  }
  const auto buffer = std::make_unique_for_overwrite<char[]>(size);
  state_->fetch(manifest().files[box.file].name, begin, size, buffer.get());
  if (!verified) check_hash(tensor, box_index, buffer.get());
  copy_part(part.part, piece, type, buffer.get(), part.target_box, part.type, part.out);
}

void Reader::read(const std::string& parameter, const std::string& kind, const std::string& dtype,
                  const Dimensions& offset, const Dimensions& shape, void* out) const {
  const StoredTensor* tensor = manifest().find(parameter, kind);
  if (tensor == nullptr) base::fail("{} has no {} of {}", path(), kind, parameter);
  const Region target{offset, shape};
  const Region full{Dimensions(tensor->shape.size(), 0), tensor->shape};
  if (offset.size() != tensor->shape.size() || shape.size() != tensor->shape.size() ||
      intersect(target, full) != target)
    base::fail("{}: {} of {} has the shape {}, which does not contain {}", path(), kind, parameter,
               to_text(full), to_text(target));
  const Element type = parse_element(dtype);
  std::vector<std::pair<size_t, Region>> parts;
  for (size_t i = 0; i < tensor->boxes.size(); ++i)
    if (auto part = intersect(tensor->boxes[i].region, target)) parts.emplace_back(i, *part);
  const uint64_t bytes = static_cast<uint64_t>(target.elements()) * element_size(type);
  const int threads = bytes < parallel_threshold ? 1 : base::hardware_threads();
  base::parallel_for(parts.size(), 1, threads, [&](size_t begin, size_t) {
    read_part(*tensor, parts[begin].first, {parts[begin].second, target, type, out});
  });
}

std::string Reader::tokenizer_file() const {
  const Manifest& m = manifest();
  std::string bytes(m.tokenizer_bytes, '\0');
  state_->fetch(m.tokenizer_name, 0, bytes.size(), bytes.data());
  if (base::hash128(bytes) != m.tokenizer_hash)
    throw DamageError(damage_text(state_->store->describe(state_->prefix + m.tokenizer_name), 0,
                                  bytes.size(), "the tokenizer"));
  return bytes;
}

std::vector<std::string> Reader::damages() const {
  const std::vector<Piece> pieces = state_->pieces();
  std::mutex mutex;
  std::map<size_t, std::string> found;
  base::parallel_for(pieces.size(), 1, base::hardware_threads(), [&](size_t begin, size_t) {
    if (auto damage = state_->damage_of(pieces[begin])) {
      const std::lock_guard lock(mutex);
      found.emplace(begin, std::move(*damage));
    }
  });
  std::vector<std::string> result;
  for (auto& [index, damage] : found) result.push_back(std::move(damage));
  return result;
}

void Reader::verify() const {
  const std::vector<std::string> found = damages();
  if (found.empty()) return;
  throw DamageError(found.size() == 1 ? found.front()
                                      : fmt::format("{} (and {} more damaged ranges)",
                                                    found.front(), found.size() - 1));
}

}  // namespace sauropod::checkpoint

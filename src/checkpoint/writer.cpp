#include "checkpoint/writer.h"

#include <algorithm>
#include <random>
#include <system_error>

#include "base/hash.h"
#include "base/threads.h"
#include "checkpoint/catalog.h"
#include "telemetry/log.h"

namespace sauropod::checkpoint {
namespace {

constexpr std::string_view tokenizer_name = "tokenizer.json";
constexpr size_t named_failures = 8;

// Differs from that of any other attempt, also of a process that is believed dead and is not.
std::string fresh_attempt(const Listed& listed) {
  std::random_device source;
  while (true) {
    std::string attempt = fmt::format("{:08x}", static_cast<uint32_t>(source()));
    const auto uses = [&](const auto& file) { return attempt_of(file.first) == attempt; };
    if (std::none_of(listed.files.begin(), listed.files.end(), uses)) return attempt;
  }
}

}  // namespace

// One checkpoint on its way. `done` and what is said to belong to the thread are read once `done` is
// true or the thread has been joined.
struct Writer::Attempt {
  int64_t step = 0;
  PartPlace place;
  std::atomic<bool> cancelled = false;
  std::atomic<bool> done = false;  // with what the thread does: writing, or on rank 0 committing
  std::exception_ptr error;        // of the thread
  std::string part;                // description of what was written, by the thread
  // The description has been sent: from here on the files are rank 0's to commit, and are removed
  // only when it says so.
  bool handed_over = false;

  // On rank 0.
  Listed before;      // what lies under the prefix already
  Manifest manifest;  // without files and tensors until it is merged
  bool keep = false;  // by the thread: the manifest is, or may be, in the store
};

Writer::Writer(storage::ObjectStore& store, Retention retention, WriterOptions options,
               Peers* peers)
    : store_(store),
      options_(options),
      peers_(peers != nullptr ? *peers : alone_),
      keeper_(store, retention) {}

Writer::~Writer() {
  if (!attempt_) return;
  try {
    if (peers_.size() == 1) {
      wait();
    } else {
      give_up();
    }
  } catch (const std::exception& error) {
    log::error("a checkpoint could not be written: {}", error.what());
  }
}

bool Writer::poll() {
  if (attempt_) advance();
  return !attempt_;
}

void Writer::wait() {
  while (attempt_) {
    join();
    advance();
  }
}

void Writer::write(const Snapshot& snapshot) {
  write_in_background(snapshot);
  try {
    wait();
  } catch (...) {
    if (attempt_) give_up();  // the peers failed; the snapshot's data is the caller's again
    throw;
  }
}

void Writer::write_in_background(Snapshot snapshot) {
  wait();
  begin(snapshot);
  start([this, snapshot = std::move(snapshot)] { write_own(snapshot); });
}

// Rank 0 clears the place and names the attempt.
void Writer::begin(const Snapshot& snapshot) {
  auto attempt = std::make_unique<Attempt>();
  attempt->step = snapshot.step;
  // This is a barrier too: nobody still removes files of an attempt that failed.
  const std::vector<std::string> steps = peers_.gather(std::to_string(snapshot.step));
  attempt->place = {prefix_of_step(snapshot.step), "", peers_.rank()};
  attempt->place.attempt = decide(peers_, [&] {
    SAUROPOD_CHECK(snapshot.step >= 0);
    for (size_t rank = 0; rank < steps.size(); ++rank)
      SAUROPOD_CHECK(steps[rank] == steps[0], "rank {} writes step {}, rank 0 step {}", rank,
                     steps[rank], steps[0]);
    Manifest& manifest = attempt->manifest;
    manifest.step = snapshot.step;
    manifest.training = snapshot.training;
    manifest.model = snapshot.model;
    manifest.tokenizer_name = tokenizer_name;
    manifest.tokenizer_bytes = snapshot.tokenizer_file.size();
    manifest.tokenizer_hash = base::hash128(snapshot.tokenizer_file);
    manifest.to_bytes();  // throws what would otherwise be found after everything is written
    keeper_.remove_leftovers();
    attempt->before = list_one(store_, attempt->place.prefix);
    return fresh_attempt(attempt->before);
  });
  attempt_ = std::move(attempt);
}

void Writer::start(std::function<void()> work) {
  attempt_->done = false;
  auto run = [this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      attempt_->error = std::current_exception();
    }
    attempt_->done = true;
  };
  try {
    thread_ = std::thread(std::move(run));
  } catch (const std::system_error&) {  // too many threads; the others must learn of it
    attempt_->error = std::current_exception();
    attempt_->done = true;
  }
}

void Writer::join() {
  if (thread_.joinable()) thread_.join();
}

// In the thread.
void Writer::write_own(const Snapshot& snapshot) {
  const Part part = write_part(store_, attempt_->place, snapshot, options_, attempt_->cancelled);
  attempt_->part = part.to_bytes();
  if (peers_.rank() == 0) write_tokenizer(snapshot.tokenizer_file);
}

void Writer::write_tokenizer(const std::string& bytes) {
  const std::string& prefix = attempt_->place.prefix;
  const std::string name(tokenizer_name);
  const Listed& before = attempt_->before;
  if (!before.committed() || !before.files.contains(name)) return store_.put(prefix + name, bytes);
  // The checkpoint that is being replaced stays whole until the end, so its tokenizer must serve.
  if (before.files.at(name) != bytes.size() || store_.get(prefix + name, bytes.size()) != bytes)
    base::fail("{} holds a checkpoint with another tokenizer: move it away or write elsewhere",
               store_.describe(prefix));
}

void Writer::advance() {
  if (attempt_->handed_over) {
    ask_whether_committed();
  } else {
    ask_who_is_written();
  }
}

// Every rank says "" (still writing), "+" (written) or "-" and why not. Rank 0 answers alike for all.
void Writer::ask_who_is_written() {
  Attempt& attempt = *attempt_;
  const std::exception_ptr own = attempt.done ? attempt.error : nullptr;
  const std::vector<std::string> all =
      peers_.gather(!attempt.done ? "" : own ? "-" + text_of(own) : "+");
  std::string answer;
  if (peers_.rank() == 0) {
    size_t written = 0, failed = 0;
    std::string failures;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      written += all[rank] == "+" ? 1 : 0;
      if (!all[rank].starts_with('-')) continue;
      if (++failed > named_failures) continue;
      failures += (failed > 1 ? "; " : "") +
                  said_by(peers_, rank, std::string_view(all[rank]).substr(1));
    }
    if (failed > named_failures)
      failures += fmt::format("; and {} more ranks", failed - named_failures);
    answer = failed > 0 ? "-" + failures : written == all.size() ? "+" : "";
  }
  answer = peers_.broadcast(std::move(answer));
  if (answer.empty()) return;
  if (answer.front() == '-') fail(own, answer.substr(1), true);
  join();
  attempt.handed_over = true;
  std::vector<std::string> parts = peers_.gather(std::move(attempt.part));
  if (peers_.rank() == 0) start([this, parts = std::move(parts)] { commit(parts); });
}

// Rank 0 says "" (not yet), "+" (it is there), "-" and why not, or "=" and what went wrong where files
// must stay all the same.
void Writer::ask_whether_committed() {
  Attempt& attempt = *attempt_;
  const bool rank0 = peers_.rank() == 0;
  const std::exception_ptr own = rank0 && attempt.done ? attempt.error : nullptr;
  std::string answer;
  if (own) {
    answer = (attempt.keep ? "=" : "-") + said_by(peers_, 0, text_of(own));
  } else if (rank0 && attempt.done) {
    answer = "+";
  }
  answer = peers_.broadcast(std::move(answer));
  if (answer.empty()) return;
  if (answer.front() != '+') fail(own, answer.substr(1), answer.front() == '-');
  join();
  attempt_.reset();
}

// In the thread of rank 0.
void Writer::commit(const std::vector<std::string>& descriptions) {
  Attempt& attempt = *attempt_;
  std::vector<Part> parts;
  for (size_t rank = 0; rank < descriptions.size(); ++rank) {
    try {
      parts.push_back(Part::parse(descriptions[rank]));
      attempt.manifest.add(parts.back());
    } catch (const base::Error& error) {
      base::fail("{}", said_by(peers_, rank, error.what()));
    }
  }
  check_files(parts);
  const std::string bytes = attempt.manifest.to_bytes();
  try {
    store_.put(attempt.place.prefix + std::string(manifest_name), bytes);
  } catch (...) {
    attempt.keep = may_be_committed(bytes);
    throw;
  }
  attempt.keep = true;
  try {
    keeper_.written(attempt.manifest, attempt.before);
  } catch (const base::Error& error) {
    base::fail("the checkpoint of step {} is written, but older files can't be removed: {}",
               attempt.step, error.what());
  }
}

// Whether what the ranks say they have written is there, as seen from here.
void Writer::check_files(const std::vector<Part>& parts) {
  std::vector<std::pair<const DataFile*, size_t>> files;  // and their ranks
  for (size_t rank = 0; rank < parts.size(); ++rank)
    for (const DataFile& file : parts[rank].files) files.emplace_back(&file, rank);
  base::parallel_for(files.size(), 1, std::max(1, options_.threads), [&](size_t begin, size_t) {
    const auto& [file, rank] = files[begin];
    const std::string key = attempt_->place.prefix + file->name;
    const auto found = store_.size(key);
    if (!found)
      base::fail("{} was written by rank {} and can't be seen by rank 0: all ranks need the same "
                 "folder, on a file system that they share",
                 store_.describe(key), rank);
    if (*found != file->bytes)
      base::fail("{} has {} bytes where rank {} wrote {}: the storage loses data",
                 store_.describe(key), *found, rank, file->bytes);
  });
}

// After an error in putting the manifest, which can follow its commit.
bool Writer::may_be_committed(const std::string& manifest) const noexcept {
  try {
    const std::string key = attempt_->place.prefix + std::string(manifest_name);
    return store_.size(key) && store_.get(key, manifest_limit) == manifest;
  } catch (...) {
    return true;
  }
}

void Writer::fail(const std::exception_ptr& own, const std::string& text, bool remove) {
  attempt_->cancelled = true;
  join();
  if (remove) remove_own();
  const int64_t step = attempt_->step;
  attempt_.reset();
  if (own) std::rethrow_exception(own);
  if (!remove) throw base::Error(text);
  base::fail("the checkpoint of step {} was not written: {}", step, text);
}

// Errors here would hide the one that matters; the next write tries again.
void Writer::remove_own() noexcept {
  try {
    remove_part(store_, attempt_->place);
    if (peers_.rank() == 0 && !attempt_->before.committed())
      store_.remove(attempt_->place.prefix + std::string(tokenizer_name));
  } catch (...) {
  }
}

// Ends the attempt by itself, without the peers. A part that was handed over is left to rank 0.
void Writer::give_up() {
  attempt_->cancelled = true;
  join();
  if (!attempt_->handed_over) remove_own();
  if (!attempt_->handed_over || (peers_.rank() == 0 && !attempt_->keep))
    log::warn("the checkpoint of step {} was given up while it was being written", attempt_->step);
  attempt_.reset();
}

}  // namespace sauropod::checkpoint

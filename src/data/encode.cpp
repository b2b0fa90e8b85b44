#include "data/encode.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::data {
namespace {

constexpr uint64_t kSplitSeed = 0x73706C6974;  // "split"
constexpr size_t kBatchBytes = size_t{1} << 20;
constexpr size_t kBatchDocuments = 4096;

// Documents that travel together from the reader to a worker to the receiver.
struct Batch {
  struct Entry {
    std::string name;
    size_t text_end;
    size_t token_end = 0;
    uint64_t hash = 0;
  };
  uint64_t number = 0;
  std::string text;
  std::vector<Entry> entries;
  std::vector<int32_t> tokens;
};

void encode_batch(Batch& batch, const Encoder& encoder) {
  size_t begin = 0;
  for (Batch::Entry& entry : batch.entries) {
    const auto text = std::string_view(batch.text).substr(begin, entry.text_end - begin);
    entry.hash = split_hash(text);
    encoder.encode(text, batch.tokens);
    batch.tokens.push_back(encoder.end_of_document);
    entry.token_end = batch.tokens.size();
    begin = entry.text_end;
  }
}

struct Stopped {};

// Batches on their way. Everything is guarded by `mutex_`; one condition serves all, for batches
// are few and large.
class Belt {
 public:
  explicit Belt(size_t budget) : budget_(budget) {}

  // Reader: waits for room. The batch that is next to be received always finds some, so a document
  // larger than the budget passes.
  void put(Batch batch) {
    std::unique_lock lock(mutex_);
    batch.number = read_++;
    changed_.wait(lock,
                  [&] { return error_ || held_ == 0 || held_ + batch.text.size() <= budget_; });
    if (error_) throw Stopped{};
    held_ += batch.text.size();
    waiting_.push_back(std::move(batch));
    changed_.notify_all();
  }
  void end_of_input() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // Worker: false when there is nothing left to do.
  bool take(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || ended_ || !waiting_.empty(); });
    if (error_ || waiting_.empty()) return false;
    batch = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }
  void give(Batch batch) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = batch.number;
    done_.emplace(number, std::move(batch));
    changed_.notify_all();
  }
  // Receiver: the next batch in order; false at the end or after an error.
  bool next(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return error_ || done_.contains(received_) || (ended_ && received_ == read_);
    });
    if (error_ || !done_.contains(received_)) return false;
    batch = std::move(done_.extract(received_).mapped());
    ++received_;
    return true;
  }
  void release(const Batch& batch) {
    const std::lock_guard lock(mutex_);
    held_ -= batch.text.size();
    changed_.notify_all();
  }

  void stop(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    changed_.notify_all();
  }
  // Runs work; an exception from it stops the belt.
  template <typename Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (const Stopped&) {
    } catch (...) {
      stop(std::current_exception());
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> waiting_;
  std::map<uint64_t, Batch> done_;
  size_t budget_;
  size_t held_ = 0;  // text bytes of all batches between put() and release()
  uint64_t read_ = 0, received_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
};

void read_batches(const std::vector<formats::InputFile>& inputs,
                  const formats::DocumentOptions& options, Belt& belt) {
  Batch batch;
  const auto send = [&] {
    if (!batch.entries.empty()) belt.put(std::exchange(batch, Batch{}));
  };
  for (const formats::InputFile& input : inputs)
    formats::read_documents(input, options, [&](std::string_view name, std::string_view text) {
      if (batch.text.size() + text.size() > kBatchBytes) send();
      batch.text.append(text);
      batch.entries.push_back({.name = std::string(name), .text_end = batch.text.size()});
      if (batch.text.size() >= kBatchBytes || batch.entries.size() == kBatchDocuments) send();
    });
  send();
  belt.end_of_input();
}

}  // namespace

Encoder encoder_of(const tokenizer::Tokenizer& tokenizer) {
  return {.encode = [&tokenizer](std::string_view text,
                                 std::vector<int32_t>& out) { tokenizer.encode(text, out); },
          .bytes_of = [&tokenizer](int32_t id) { return tokenizer.bytes_of(id); },
          .vocabulary = tokenizer.size(),
          .end_of_document = tokenizer.end_of_document(),
          .hash = tokenizer.hash()};
}

std::vector<int32_t> item_bytes(const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    bytes.push_back(static_cast<int32_t>(tokenizer.bytes_of(id).size()));
  return bytes;
}

uint64_t split_hash(std::string_view text) {
  return base::hash64(text, kSplitSeed);
}

void encode_documents(const std::vector<formats::InputFile>& inputs,
                      const formats::DocumentOptions& options, const Encoder& encoder, int threads,
                      const std::function<void(const EncodedDocument&)>& receive) {
  SAUROPOD_CHECK(threads > 0);
  Belt belt((static_cast<size_t>(threads) + 1) * 4 * kBatchBytes);
  {
    std::vector<std::jthread> team;
    team.emplace_back([&] { belt.guard([&] { read_batches(inputs, options, belt); }); });
    for (int i = 0; i < threads; ++i)
      team.emplace_back([&] {
        belt.guard([&] {
          for (Batch batch; belt.take(batch);) {
            encode_batch(batch, encoder);
            belt.give(std::move(batch));
          }
        });
      });
    belt.guard([&] {
      for (Batch batch; belt.next(batch); belt.release(batch)) {
        size_t text = 0, token = 0;
        for (const Batch::Entry& entry : batch.entries) {
          receive({.name = entry.name,
                   .bytes = entry.text_end - text,
                   .split_hash = entry.hash,
                   .tokens = std::span(batch.tokens).subspan(token, entry.token_end - token)});
          text = entry.text_end;
          token = entry.token_end;
        }
      }
    });
  }
  belt.rethrow();
}

}  // namespace sauropod::data

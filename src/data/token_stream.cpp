#include "data/token_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"

namespace sauropod::data {
namespace {

constexpr uint64_t kStride = 16;  // documents from one entry of an epoch's table to the next
constexpr size_t kGrain = 4096;   // entries that one thread computes at a time

}  // namespace

TokenStream::TokenStream(std::shared_ptr<const formats::IndexedDataset> dataset, uint64_t key,
                         uint64_t window)
    : dataset_(std::move(dataset)), key_(key) {
  SAUROPOD_CHECK(dataset_->tokens() > 0);
  // The tables of all epochs in the window together are no larger than one of a corpus of that many
  // one-token documents.
  kept_ = static_cast<size_t>(window / dataset_->tokens()) + 3;
}

std::shared_ptr<const TokenStream::Epoch> TokenStream::epoch(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = epochs_.find(number); found != epochs_.end()) return found->second;
  auto built = build(number);
  epochs_.emplace(number, built);
  if (epochs_.size() > kept_) {
    // Drop the epoch that lies farthest away.
    const auto last = std::prev(epochs_.end());
    epochs_.erase(number - epochs_.begin()->first > last->first - number ? epochs_.begin() : last);
  }
  return built;
}

std::shared_ptr<const TokenStream::Epoch> TokenStream::build(uint64_t number) const {
  auto epoch = std::make_shared<Epoch>();
  epoch->key = base::random_bits(key_, number);
  const uint64_t documents = dataset_->documents();
  epoch->starts.resize((documents + kStride - 1) / kStride);
  auto& starts = epoch->starts;
  base::parallel_for(
      starts.size(), kGrain, base::hardware_threads(), [&](size_t begin, size_t end) {
        for (size_t j = begin; j < end; ++j) {
          uint64_t tokens = 0;
          for (uint64_t rank = j * kStride; rank < std::min((j + 1) * kStride, documents); ++rank) {
            const uint64_t document = base::permute(epoch->key, documents, rank);
            tokens += dataset_->document_begin(document + 1) - dataset_->document_begin(document);
          }
          starts[j] = tokens;
        }
      });
  uint64_t sum = 0;
  for (uint64_t& start : starts) sum += std::exchange(start, sum);
  SAUROPOD_CHECK(sum == dataset_->tokens());
  return epoch;
}

void TokenStream::read(uint64_t position, std::span<int32_t> out, int64_t vocabulary) const {
  while (!out.empty()) {
    const uint64_t begin = position % dataset_->tokens();
    const size_t count = std::min<uint64_t>(out.size(), dataset_->tokens() - begin);
    read_epoch(position / dataset_->tokens(), begin, out.first(count), vocabulary);
    position += count;
    out = out.subspan(count);
  }
}

void TokenStream::read_epoch(uint64_t number, uint64_t begin, std::span<int32_t> out,
                             int64_t vocabulary) const {
  const auto epoch = this->epoch(number);
  const auto& starts = epoch->starts;
  const auto entry = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
  uint64_t rank = static_cast<uint64_t>(entry) * kStride;
  uint64_t skip = begin - starts[static_cast<size_t>(entry)];
  while (!out.empty()) {
    const uint64_t document = base::permute(epoch->key, dataset_->documents(), rank++);
    const uint64_t first = dataset_->document_begin(document);
    const uint64_t length = dataset_->document_begin(document + 1) - first;
    if (skip >= length) {
      skip -= length;
      continue;
    }
    const size_t count = std::min<uint64_t>(out.size(), length - skip);
    dataset_->read(first + skip, out.first(count), vocabulary);
    out = out.subspan(count);
    skip = 0;
  }
}

}  // namespace sauropod::data

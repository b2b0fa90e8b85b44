#include "tokenizer/grams.h"

#include <algorithm>

namespace sauropod::tokenizer {
namespace {

// Counts by 64-bit keys, open addressing. Keys are never all ones.
class PairCounts {
 public:
  struct Slot {
    uint64_t key = empty;
    int64_t count = 0;
    uint32_t id = no_gram;
  };
  static constexpr uint64_t empty = UINT64_MAX;

  PairCounts() : slots_(size_t{1} << 16) {}

  Slot& operator[](uint64_t key) {
    if (used_ * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == empty) {
      slot.key = key;
      ++used_;
    }
    return slot;
  }

 private:
  size_t place(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != empty) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

uint64_t pair_at(const std::vector<uint32_t>& at, size_t position) {
  if (at[position] == no_gram || at[position + 1] == no_gram) return PairCounts::empty;
  return static_cast<uint64_t>(at[position]) << 32 | at[position + 1];
}

int64_t weight(std::span<const int64_t> weights, size_t position) {
  return weights.empty() ? 1 : weights[position];
}

}  // namespace

Grams single_symbols(std::vector<uint32_t> symbols, size_t distinct,
                     std::span<const int64_t> weights) {
  Grams grams;
  grams.at = std::move(symbols);
  grams.count.assign(distinct, 0);
  grams.first.assign(distinct, 0);
  grams.extension.assign(distinct, 0);
  for (size_t p = grams.at.size(); p-- > 0;) {
    if (grams.at[p] == no_gram) continue;
    grams.count[grams.at[p]] += weight(weights, p);
    grams.first[grams.at[p]] = static_cast<uint32_t>(p);
  }
  return grams;
}

Grams longer_grams(Grams& shorter, std::span<const int64_t> weights, int64_t min_count) {
  const size_t size = shorter.at.size();
  PairCounts pairs;
  for (size_t p = 0; p + 1 < size; ++p) {
    const uint64_t key = pair_at(shorter.at, p);
    if (key != PairCounts::empty) pairs[key].count += weight(weights, p);
  }
  Grams longer;
  longer.at.assign(size, no_gram);
  for (size_t p = 0; p + 1 < size; ++p) {
    const uint64_t key = pair_at(shorter.at, p);
    if (key == PairCounts::empty) continue;
    PairCounts::Slot& slot = pairs[key];
    if (slot.count < min_count) continue;
    if (slot.id == no_gram) {
      slot.id = static_cast<uint32_t>(longer.count.size());
      longer.count.push_back(slot.count);
      longer.first.push_back(static_cast<uint32_t>(p));
      for (const uint32_t part : {shorter.at[p], shorter.at[p + 1]})
        shorter.extension[part] = std::max(shorter.extension[part], slot.count);
    }
    longer.at[p] = slot.id;
  }
  longer.extension.assign(longer.count.size(), 0);
  return longer;
}

}  // namespace sauropod::tokenizer

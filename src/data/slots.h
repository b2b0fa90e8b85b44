// Which corpus a sample comes from: weighted corpora share blocks of 4,096 slots (docs/data.md).
//
// Every block gives each corpus the same number of slots, its quota; a permutation keyed by the
// block spreads them. The answer is a pure function of (seed, quotas, sample index), so the
// position in the data is one integer and any rank, layout or resumed run computes the same order.
#pragma once

#include <cstdint>
#include <vector>

namespace sauropod::data {

inline constexpr uint64_t kSlotsPerBlock = 4096;

// The quotas of corpora with these weights (> 0, finite) by largest remainders: the whole part of
// 4096 w / sum(w) each, and what is left one each to the largest fractions, ties to the earlier
// corpus. They add up to 4,096. A corpus may get 0.
std::vector<uint64_t> slot_quotas(const std::vector<double>& weights);

// Thread-safe.
class Slots {
 public:
  Slots(std::vector<uint64_t> quotas, uint64_t seed);

  struct Place {
    uint64_t corpus;
    uint64_t index;  // which of the corpus's own samples
    bool operator==(const Place&) const = default;
  };
  Place place(uint64_t sample) const;
  const std::vector<uint64_t>& quotas() const { return quotas_; }

 private:
  std::vector<uint64_t> quotas_;
  std::vector<uint64_t> ends_;  // running sums of the quotas
  uint64_t key_;
};

}  // namespace sauropod::data

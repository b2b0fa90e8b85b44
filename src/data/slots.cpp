#include "data/slots.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace sauropod::data {

std::vector<uint64_t> slot_quotas(const std::vector<double>& weights) {
  SAUROPOD_CHECK(!weights.empty());
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> quotas;
  std::vector<double> fractions;
  uint64_t given = 0;
  for (const double weight : weights) {
    SAUROPOD_CHECK(weight > 0 && std::isfinite(weight / sum));
    const double share = static_cast<double>(kSlotsPerBlock) * (weight / sum);
    quotas.push_back(static_cast<uint64_t>(share));
    fractions.push_back(share - std::floor(share));
    given += quotas.back();
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return fractions[a] > fractions[b]; });
  for (size_t i = 0; given < kSlotsPerBlock; ++i, ++given) ++quotas[order[i % order.size()]];
  SAUROPOD_CHECK(given == kSlotsPerBlock);
  return quotas;
}

Slots::Slots(std::vector<uint64_t> quotas, uint64_t seed)
    : quotas_(std::move(quotas)), key_(base::random_key(seed, "data.slots")) {
  std::partial_sum(quotas_.begin(), quotas_.end(), std::back_inserter(ends_));
  SAUROPOD_CHECK(!ends_.empty() && ends_.back() == kSlotsPerBlock);
}

Slots::Place Slots::place(uint64_t sample) const {
  const uint64_t block = sample / kSlotsPerBlock;
  const uint64_t slot =
      base::permute(base::random_bits(key_, block), kSlotsPerBlock, sample % kSlotsPerBlock);
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), slot);
  const auto corpus = static_cast<uint64_t>(found - ends_.begin());
  const uint64_t rank = slot - (*found - quotas_[corpus]);
  return {corpus, quotas_[corpus] * block + rank};
}

}  // namespace sauropod::data

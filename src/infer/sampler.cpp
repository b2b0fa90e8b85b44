#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace sauropod::infer {

void SamplingOptions::check() const {
  // Written so that NaN is refused.
  if (!(temperature >= 0 && temperature <= 100))
    base::fail_usage("the temperature is {}; it must be between 0 and 100", temperature);
  if (top_k < 0) base::fail_usage("top-k is {}; it must be positive, or 0 for all items", top_k);
  if (!(top_p > 0 && top_p <= 1))
    base::fail_usage("top-p is {}; it must be above 0 and at most 1", top_p);
  if (!(min_p >= 0 && min_p <= 1))
    base::fail_usage("min-p is {}; it must be between 0 and 1", min_p);
  if (!(repetition_penalty > 0 && repetition_penalty <= 100))
    base::fail_usage("the repetition penalty is {}; it must be above 0 and at most 100",
                     repetition_penalty);
}

Sampler::Sampler(const SamplingOptions& options, int64_t choice, std::span<const int32_t> seen)
    : options_(options),
      key_(base::random_key(options.seed, fmt::format("choice.{}", choice))) {
  options_.check();
  if (options_.repetition_penalty == 1) return;
  seen_.assign(seen.begin(), seen.end());
  std::sort(seen_.begin(), seen_.end());
  seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
}

int32_t Sampler::choose(std::span<const float> logits, uint64_t position) {
  SAUROPOD_CHECK(!logits.empty());
  weights_.assign(logits.begin(), logits.end());
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const int32_t id : seen_) {
    float& logit = weights_.at(static_cast<size_t>(id));
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  const auto best = std::max_element(weights_.begin(), weights_.end());
  const float largest = *best;
  bool finite = std::isfinite(largest);
  for (const float logit : weights_) finite &= !std::isnan(logit);
  if (!finite)
    base::fail("the model's predictions are not finite numbers: the weights are those of a run that "
               "diverged; use an earlier checkpoint");

  auto chosen = static_cast<int32_t>(best - weights_.begin());
  if (options_.temperature > 0) {
    const double scale = 1 / options_.temperature;
    for (float& weight : weights_)
      weight = std::exp(static_cast<float>((static_cast<double>(weight) - largest) * scale));
    kept_.resize(weights_.size());
    std::iota(kept_.begin(), kept_.end(), 0);
    keep_top_k();
    keep_top_p();
    keep_min_p();
    chosen = draw(base::random_uniform(key_, position));
  }
  if (options_.repetition_penalty != 1) {
    const auto place = std::lower_bound(seen_.begin(), seen_.end(), chosen);
    if (place == seen_.end() || *place != chosen) seen_.insert(place, chosen);
  }
  return chosen;
}

// The order of selection: the more probable first, then the smaller id.
bool Sampler::before(int32_t a, int32_t b) const {
  const float wa = weights_[static_cast<size_t>(a)], wb = weights_[static_cast<size_t>(b)];
  return wa > wb || (wa == wb && a < b);
}

// Keeps `last` and what comes before it, in the order of ids.
void Sampler::keep_through(int32_t last) {
  std::erase_if(kept_, [&](int32_t id) { return before(last, id); });
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= kept_.size()) return;
  scratch_ = kept_;
  const auto nth = scratch_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch_.begin(), nth, scratch_.end(),
                   [&](int32_t a, int32_t b) { return before(a, b); });
  keep_through(*nth);
}

void Sampler::keep_top_p() {
  if (options_.top_p == 1) return;
  double total = 0;
  for (const int32_t id : kept_) total += weights_[static_cast<size_t>(id)];
  // All items below this weight together have less than 1 − top_p, so the nucleus lies above it.
  const double floor = (1 - options_.top_p) * total / static_cast<double>(kept_.size());
  scratch_.clear();
  for (const int32_t id : kept_)
    if (weights_[static_cast<size_t>(id)] >= floor) scratch_.push_back(id);

  // Bisection by mass: the nucleus' last item is in [begin, end), all before `begin` belong to it and
  // have `mass`.
  const double target = options_.top_p * total;
  double mass = 0;
  auto begin = scratch_.begin(), end = scratch_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, [&](int32_t a, int32_t b) { return before(a, b); });
    double upper = 0;
    for (auto id = begin; id != middle; ++id) upper += weights_[static_cast<size_t>(*id)];
    if (mass + upper >= target) {
      end = middle;
    } else {
      mass += upper;
      begin = middle;
    }
  }
  keep_through(*begin);
}

void Sampler::keep_min_p() {
  if (options_.min_p == 0) return;
  const auto least = static_cast<float>(options_.min_p);
  std::erase_if(kept_, [&](int32_t id) { return weights_[static_cast<size_t>(id)] < least; });
}

int32_t Sampler::draw(double uniform) {
  double total = 0;
  for (const int32_t id : kept_) total += weights_[static_cast<size_t>(id)];
  double rest = uniform * total;
  int32_t chosen = -1;
  for (const int32_t id : kept_) {
    const float weight = weights_[static_cast<size_t>(id)];
    if (weight == 0) continue;
    chosen = id;
    if ((rest -= weight) < 0) break;
  }
  return chosen;
}

}  // namespace sauropod::infer

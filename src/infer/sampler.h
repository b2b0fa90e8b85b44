// Choosing the next item from logits.
//
// In this order: the repetition penalty (Keskar et al., 2019), temperature, top-k, top-p (the nucleus of
// Holtzman et al., 2020, of what top-k left), min-p (Nguyen et al., 2024). Selection works by thresholds
// in time linear in the vocabulary; nothing is sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sauropod::infer {

struct SamplingOptions {
  double temperature = 1;         // 0: the most probable item
  int64_t top_k = 0;              // only the k most probable items; 0: all
  double top_p = 1;               // only the fewest items that have this probability together
  double min_p = 0;               // only items at least this fraction as probable as the first
  double repetition_penalty = 1;  // logits of items seen before: divided (positive), multiplied (negative)
  uint64_t seed = 0;

  // Throws base::Error (usage) for values that can't be meant.
  void check() const;
};

// Draws the items of one sequence. The draw at a position depends on (seed, choice, position) and the
// logits alone, so that it is the same whatever else is generated beside it. Equally probable items are
// taken by their ids where a limit falls between them. Not thread-safe.
class Sampler {
 public:
  // `seen` are the items of the prompt.
  Sampler(const SamplingOptions& options, int64_t choice, std::span<const int32_t> seen);

  // Chooses the item at `position`, counted from the first that is generated, and takes it as seen.
  // logits [vocabulary]. Throws base::Error when they are not finite.
  int32_t choose(std::span<const float> logits, uint64_t position);

 private:
  int32_t draw(double uniform);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void keep_through(int32_t last);
  bool before(int32_t a, int32_t b) const;

  SamplingOptions options_;
  uint64_t key_;
  std::vector<int32_t> seen_;         // ascending
  std::vector<float> weights_;        // of each item, the most probable has 1
  std::vector<int32_t> kept_;         // ascending
  std::vector<int32_t> scratch_;
};

}  // namespace sauropod::infer

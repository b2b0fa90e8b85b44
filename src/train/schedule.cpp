#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sauropod::train {

double learning_rate(const TrainOptions& options, int64_t tokens, int64_t run_tokens) {
  const double at = static_cast<double>(tokens);
  const double warmup = static_cast<double>(options.warmup_tokens);
  if (at < warmup) return options.learning_rate * at / warmup;
  if (options.schedule == "constant") return options.learning_rate;
  const double end =
      static_cast<double>(options.decay_tokens > 0 ? options.decay_tokens : run_tokens);
  double begin = warmup;
  if (options.schedule == "wsd")
    begin = std::max(warmup, options.stable_tokens > 0
                                 ? static_cast<double>(options.stable_tokens)
                                 : 0.9 * end);
  const double progress =
      end > begin ? std::clamp((at - begin) / (end - begin), 0.0, 1.0) : (at >= end ? 1.0 : 0.0);
  const double share =
      options.schedule == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return options.min_learning_rate + share * (options.learning_rate - options.min_learning_rate);
}

}  // namespace sauropod::train

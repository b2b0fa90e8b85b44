// The learning rate as a function of tokens.
#pragma once

#include <cstdint>

#include "train/options.h"

namespace sauropod::train {

// The rate of a step at `tokens`, the tokens consumed before it plus its own batch: linear warm-up from
// 0, then to min_learning_rate at decay_tokens along half a cosine (Loshchilov and Hutter, 2017), along a
// line, or along a line that begins at stable_tokens (wsd: Hu et al., 2024); afterwards the minimum.
// `constant` stays at learning_rate. `run_tokens` stands in for decay_tokens 0.
double learning_rate(const TrainOptions& options, int64_t tokens, int64_t run_tokens);

}  // namespace sauropod::train

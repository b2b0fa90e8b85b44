// The arithmetic of one training token.
#pragma once

#include "model/parameters.h"

namespace sauropod::model {

// Floating-point operations of forward and backward pass for one token, recomputation left out:
//   6 · (elements of all matrices that multiply, the output layer included)
// + 6 · layers · heads · head_size · T
// for sequences of T tokens. The second term is causal attention counted honestly: a token meets (T + 1)/2
// keys on average, so its two products cost 2 · 2 · D · T/2 forward and twice that backward. (Korthikanti et
// al., 2022, and most published figures count 12 instead of 6, as if every token met all T.)
double training_flops_per_token(const ModelOptions& options, int64_t length);

}  // namespace sauropod::model

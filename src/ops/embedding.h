// Token and position embeddings.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

// tokens [sequences, length] int32 -> [sequences · length, hidden]: row token of `token_weight`
// [vocabulary, hidden], plus row position of `position_weight` [context, hidden] where it is defined.
// positions [sequences, length] int32, or undefined for 0, 1, 2, … in each sequence. The gradients of
// both weights are added to theirs, each row in the order of the tokens.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& positions,
                     const Weight& token_weight, const Weight& position_weight);

}  // namespace sauropod::ops

// Token and position embeddings.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

// tokens [sequences, length] int32 -> [sequences · length, hidden]: row token of `token_weight`
// [vocabulary, hidden], plus row position of `position_weight` [context, hidden] where it is defined.
// positions [sequences, length] int32, or undefined for 0, 1, 2, … in each sequence. The gradients of
// both weights are added to theirs, each row in the order of the tokens.
//
// token_weight may have a part of the vocabulary, maybe none: items [first_item, first_item + rows). Of a
// token in another part the sum is over the position's row alone, or over nothing, and it adds to no
// gradient. `vocabulary` is then the size of the whole one; 0: this part's end, so that the first part by
// itself would be the whole. On the CPU an id outside the whole is a base::Error.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& positions,
                     const Weight& token_weight, const Weight& position_weight,
                     int64_t first_item = 0, int64_t vocabulary = 0);

}  // namespace sauropod::ops

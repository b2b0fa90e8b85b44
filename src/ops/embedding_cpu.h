// The CPU side of embedding.h: float and bf16.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

// rows, places [tokens] int32; places and position_weight may be undefined. A row that the token's table
// doesn't have counts as zeros; places are within their table.
at::Tensor embedding_forward_cpu(const at::Tensor& rows, const at::Tensor& places,
                                 const at::Tensor& token_weight, const at::Tensor& position_weight);

// weight.gradient[rows[i]] += dx[i], in the order of i; rows outside the table are passed over.
void embedding_backward_cpu(const at::Tensor& dx, const at::Tensor& rows, const Weight& weight);

}  // namespace sauropod::ops

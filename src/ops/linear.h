// y = x Wᵀ + b, and the pieces of it that fused operations reuse.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

// x [tokens, in], weight [out, in], bias [out] or undefined -> [tokens, out]. Differentiable in x; the
// gradients of weight and bias are added to theirs.
at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias = {});

// weight.gradient += dyᵀ x; bias.gradient += column sums of dy. In bf16 the products are summed in
// float and never rounded to bf16. dy [tokens, out] and x [tokens, in] are contiguous.
void accumulate_linear_gradient(const at::Tensor& dy, const at::Tensor& x, const Weight& weight,
                                const Weight& bias = {});

}  // namespace sauropod::ops

// The CPU side of norm.h: float and bf16.
#pragma once

#include "ops/norm.h"

namespace sauropod::ops {

struct NormResult {
  at::Tensor sum, y;
  at::Tensor mean, rstd;  // [tokens], float (double for double)
};

NormResult norm_forward_cpu(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                            const Weight& bias, NormKind kind, double epsilon);

// d_sum may be undefined. Returns the gradient of x and delta.
at::Tensor norm_backward_cpu(const NormResult& result, const at::Tensor& dy, const at::Tensor& d_sum,
                             const Weight& weight, const Weight& bias, NormKind kind);

}  // namespace sauropod::ops

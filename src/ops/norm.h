// Residual addition and normalisation in one pass: LayerNorm (Ba et al., 2016) and RMSNorm (Zhang and
// Sennrich, 2019).
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

enum class NormKind { layer, rms };

struct Normalized {
  at::Tensor sum;  // x + delta, the residual stream; x itself when there is no delta
  at::Tensor y;    // the normalised sum, scaled and shifted
};

// x, delta [tokens, hidden]; delta may be undefined. weight [hidden]; bias [hidden] or undefined.
// Statistics are in float (double for double). Differentiable in x and delta, whose gradients are the
// same; the gradients of weight and bias are added to theirs.
Normalized add_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                    const Weight& bias, NormKind kind, double epsilon);

}  // namespace sauropod::ops

// The feed-forward half of a block as one operation, so that the widest activations exist once.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

enum class Activation { gelu, swiglu };

// x [tokens, hidden] -> [tokens, hidden].
//   gelu:   y = gelu(x Upᵀ + up_bias) Downᵀ + down_bias, up [mlp, hidden], the tanh form of GELU
//   swiglu: y = (silu(x Gateᵀ) · x Upᵀ) Downᵀ, `up` is gate and up back to back [2·mlp, hidden], no
//           biases
// With `recompute` the activation's output is not kept but computed again in the backward pass, with
// the same bits. Differentiable in x; the weights' gradients are added to theirs.
at::Tensor mlp(const at::Tensor& x, Activation activation, const Weight& up, const Weight& up_bias,
               const Weight& down, const Weight& down_bias, bool recompute);

}  // namespace sauropod::ops

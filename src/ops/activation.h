// The activations of mlp.h without the products around them.
#pragma once

#include "ops/mlp.h"

namespace sauropod::ops {

// gelu: pre [tokens, mlp], bias [mlp] or undefined; swiglu: pre [tokens, 2·mlp]. -> [tokens, mlp].
at::Tensor activation_forward(Activation activation, const at::Tensor& pre, const at::Tensor& bias);

// The gradient of `pre`; dy may be overwritten.
at::Tensor activation_backward(Activation activation, const at::Tensor& pre, const at::Tensor& bias,
                               const at::Tensor& dy);

// The CPU sides, float and bf16.
at::Tensor activation_forward_cpu(Activation activation, const at::Tensor& pre,
                                  const at::Tensor& bias);
at::Tensor activation_backward_cpu(Activation activation, const at::Tensor& pre,
                                   const at::Tensor& bias, const at::Tensor& dy);

}  // namespace sauropod::ops

// Runs a function without keeping its activations, and runs it again in the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace sauropod::ops {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// The outputs of function(inputs), differentiable in the inputs; undefined inputs are allowed. The
// function must give the same bits each time, and adds its weights' gradients to theirs.
std::vector<at::Tensor> recomputed(TensorFunction function, const std::vector<at::Tensor>& inputs);

}  // namespace sauropod::ops

// A place in the graph that tells when the backward pass has come past it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace sauropod::ops {

// The tensors, unchanged; those that are undefined stay so. In the backward pass `done` is called once, when
// the gradients of all of them are known: everything that was computed from them has then added its
// weights' gradients. Called on the thread of the backward pass; may throw.
std::vector<at::Tensor> notify(const std::vector<at::Tensor>& tensors, std::function<void()> done);

}  // namespace sauropod::ops

// A parameter as an operation sees it.
//
// Operations add the gradient of a parameter straight into `gradient`, a view of a flat buffer, during
// the backward pass; they do not hand it to autograd. So it is summed over microbatches in float even
// when `value` is bf16 (the engine would round each contribution to bf16 first), and no second copy is
// ever made. An undefined `gradient` means none is wanted.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::ops {

struct Weight {
  at::Tensor value;     // in the type of the computation
  at::Tensor gradient;  // float (double when value is double), same shape; or undefined

  bool defined() const { return value.defined(); }
  bool wants_gradient() const { return gradient.defined(); }
};

}  // namespace sauropod::ops

// Shared by the CPU sides of the operations: which kernels apply, and typed access to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/pointwise_kernel.h"

namespace sauropod::ops {

// Our kernels handle float and bf16 on the CPU; other types (double in tests) and devices take ATen's
// operations.
inline bool has_kernels(const at::Tensor& x) {
  return x.device().is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

template <typename T>
const PointwiseOf<T>& pointwise();
template <>
inline const PointwiseOf<float>& pointwise<float>() {
  return pointwise_kernels().f32;
}
template <>
inline const PointwiseOf<Bf16>& pointwise<Bf16>() {
  return pointwise_kernels().bf16;
}

// The elements of a contiguous tensor; null for an undefined one.
template <typename T>
T* elements(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

// Calls function(T{}) with the kernel's element type.
template <typename Function>
void with_element_type(const at::Tensor& x, const Function& function) {
  if (x.scalar_type() == at::kFloat) {
    function(float{});
  } else {
    function(Bf16{});
  }
}

// Rows that one call of a row-wise kernel should take, so that a piece is worth a thread's while.
inline int64_t row_grain(int64_t width) { return width >= 16384 ? 1 : 16384 / width; }

}  // namespace sauropod::ops

// The matrix products of the linear layers: our own in float where the processor has AVX-512, ATen's
// elsewhere. No gradients are recorded.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::ops {

// y [tokens, out] = x [tokens, in] · weight [out, in]ᵀ + bias; bias may be undefined.
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias = {});
void times_transposed_out(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight);

// x [tokens, in] = y [tokens, out] · weight [out, in].
at::Tensor times(const at::Tensor& y, const at::Tensor& weight);
void times_out(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight);

// sum [out, in] += y [tokens, out]ᵀ · x [tokens, in], all of one type.
void add_transposed_times(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x);

}  // namespace sauropod::ops

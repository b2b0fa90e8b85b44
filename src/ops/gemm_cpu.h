// The CPU side of gemm.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::ops {

// Whether gemm_f32 applies: float on a processor with AVX-512.
bool have_gemm(const at::Tensor& x);

// c [m, n] = or += op(a) · op(b), all float with contiguous rows; op(a) is [m, k], op(b) is [k, n]. Every
// element is summed in the same order for any number of threads.
void gemm_f32(const at::Tensor& c, const at::Tensor& a, bool a_transposed, const at::Tensor& b,
              bool b_transposed, bool accumulate);

}  // namespace sauropod::ops

// AdamW over flat buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/pointwise_kernel.h"

namespace sauropod::ops {

// Updates elements [begin, end) of the flat buffers in place: gradient (then set to zero), master, moment1 and moment2 in
// float (or all in double), weights in bf16 or undefined when the master copy is the weights.
void adamw(const AdamW& options, int64_t begin, int64_t end, const at::Tensor& gradient,
           const at::Tensor& master, const at::Tensor& moment1, const at::Tensor& moment2,
           const at::Tensor& weights);

// Σ x² in double, over fixed blocks in order: the same bits for any number of threads. 0 on
// the meta device, which has no values.
double sum_of_squares(const at::Tensor& x);

// weights (bf16) = master (float) rounded to nearest.
void round_to_bf16(const at::Tensor& master, const at::Tensor& weights);

}  // namespace sauropod::ops

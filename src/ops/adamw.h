// AdamW over flat buffers, and the master copy of bf16 weights.
//
// A master copy is a float for each weight; the weights of the computation are its nearest bf16. Both
// together are kept in 32 bits: the bf16 is the upper half of the float, rounded (halves away from zero),
// and beside it stand the float's lower 16 bits, so that
//   bits of the float = (bits of the bf16 << 16) + the lower 16 bits as a signed number.
// No bit of the float is lost, and 2 bytes a parameter are saved.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/pointwise_kernel.h"

namespace sauropod::ops {

// What an update reads and writes; flat buffers of one length.
struct AdamWBuffers {
  at::Tensor gradient;  // float, or all but `low` double; set to zero
  at::Tensor weights;   // float or double: the master copy itself; or bf16
  at::Tensor low;       // int16, where the weights are bf16: the lower halves of the master copy
  at::Tensor moment1, moment2;  // in the type of the gradient
};

// Updates elements [begin, end) in place.
void adamw(const AdamW& options, int64_t begin, int64_t end, const AdamWBuffers& buffers);

// weights (bf16) and low (int16, or undefined: not wanted) from the master copy (float).
void split_master(const at::Tensor& master, const at::Tensor& weights, const at::Tensor& low);
// The inverse.
void join_master(const at::Tensor& weights, const at::Tensor& low, const at::Tensor& master);

// Σ x² in double, over fixed blocks in order: the same bits for any number of threads. 0 on
// the meta device, which has no values.
double sum_of_squares(const at::Tensor& x);

}  // namespace sauropod::ops

// The differentiable collectives of a tensor-parallel group: where a block's values pass between what every
// rank has and what each has a part of (Shoeybi et al., 2019; by tokens: Korthikanti et al., 2022).
//
// All ranks of the group call them in the same order, forward and backward, which is so when they build the
// same graph; under ops::recomputed the backward pass issues them again. The group outlives the backward
// pass, and is then used by the thread that runs it. `label` (a literal: it is kept) names the calls of both
// passes in the group's statistics; the backward pass adds " gradient". A group of one costs nothing: the
// result is x itself. Every call waits for its result. Float, double and bf16, on any device of the group.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::comm {
class Communicator;
}

namespace sauropod::ops {

// x, the same on all ranks, before each uses it in its own way: forward x; backward the gradients' sum.
at::Tensor copy_to_group(const at::Tensor& x, comm::Communicator& group, const char* label);

// The sum of all ranks' x; backward the gradient as it is, the same on all ranks. Works in x's memory where
// nobody else holds it: given a temporary, or std::move(x).
at::Tensor reduce_from_group(at::Tensor x, comm::Communicator& group, const char* label);

// x [n, h] -> [size · n, h], the rows of all ranks in their order; backward the gradients' sum, of which
// each rank gets its rows.
at::Tensor gather_rows(const at::Tensor& x, comm::Communicator& group, const char* label);

// x [size · n, h] -> [n, h], this rank's rows of the sum; backward the gradients of all ranks' rows.
at::Tensor reduce_scatter_rows(const at::Tensor& x, comm::Communicator& group, const char* label);

}  // namespace sauropod::ops

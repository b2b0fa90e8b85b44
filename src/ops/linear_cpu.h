// The CPU side of linear.h.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

// Does what accumulate_linear_gradient says where we have kernels for it; false where we have none.
bool accumulate_linear_gradient_cpu(const at::Tensor& dy, const at::Tensor& x, const Weight& weight,
                                    const Weight& bias);

// sums[width] (float) += column sums of x [rows, width].
void column_sums_cpu(const at::Tensor& x, const at::Tensor& sums);

}  // namespace sauropod::ops

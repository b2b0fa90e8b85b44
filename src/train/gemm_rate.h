// The yardstick of a run's speed: how fast this machine multiplies matrices.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::train {

// Floating-point operations per second of 1024³ products in `type`: the best of several, over about a
// fifth of a second.
double measure_gemm_rate(at::ScalarType type, at::Device device);

}  // namespace sauropod::train

// Sums and maxima of what several ranks gave, element by element, in their order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace sauropod::comm {

// output[i] = sources[0][i] + sources[1][i] + …, each source and the output of `count` elements. Added from
// left to right: double in double, float in float, bf16 in float and rounded once at the end (nearest, ties
// to even), integers modulo 2^bits. A maximum that meets a NaN is NaN. The output may be one of the sources.
void reduce(at::ScalarType type, Reduce reduce, std::span<const void* const> sources, void* output,
            int64_t count);

}  // namespace sauropod::comm

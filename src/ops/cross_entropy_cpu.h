// The CPU side of cross_entropy.h: float and bf16.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::ops {

// For each row of logits [rows, vocabulary]: nats[row] and log_sum[row] (float, written), and, when scale
// is not 0, the logits overwritten by the gradient of scale · (nats + z_loss · log_sum²). A target outside
// the vocabulary is a base::Error.
void cross_entropy_cpu(const at::Tensor& logits, const int32_t* targets, float scale, float z_loss,
                       float* nats, float* log_sum);

}  // namespace sauropod::ops

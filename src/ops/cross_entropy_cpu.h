// The CPU side of cross_entropy.h: float and bf16.
//
// logits [rows, width] are those of items [first_item, first_item + width); targets are items of the whole
// vocabulary, and a negative one leaves its row out.
#pragma once

#include <ATen/core/Tensor.h>

namespace sauropod::ops {

// nats[row] and log_sum[row] (float, written) of a whole vocabulary, and, when scale is not 0, the logits
// overwritten by the gradient of scale · (nats + z_loss · log_sum²).
void cross_entropy_cpu(const at::Tensor& logits, const int32_t* targets, float scale, float z_loss,
                       float* nats, float* log_sum);

// The two passes of it for a part of the vocabulary. First log_sum[row] of the part, and the logit of the
// target where it is in the part, 0 elsewhere; both 0 in a row that is left out.
void cross_entropy_statistics_cpu(const at::Tensor& logits, const int32_t* targets, int64_t first_item,
                                  float* log_sum, float* target_logit);
// Then the gradient, given log_sum of the whole vocabulary.
void cross_entropy_gradient_cpu(const at::Tensor& logits, const int32_t* targets, int64_t first_item,
                                const float* log_sum, float scale, float z_loss);

}  // namespace sauropod::ops

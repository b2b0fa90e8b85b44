// The CPU side of attention.h, for processors with AVX-512 and BF16.
#pragma once

#include "ops/attention.h"

namespace sauropod::ops {

bool have_attention_kernel(const at::Tensor& qkv, const AttentionShape& shape);

// log_sum [sequences, heads, T] float is allocated.
at::Tensor attention_forward_cpu(const at::Tensor& qkv, const AttentionShape& shape,
                                 const AttentionContext& context, at::Tensor* log_sum);

// The gradient of qkv as attention_forward_cpu read it.
at::Tensor attention_backward_cpu(const at::Tensor& d_out, const at::Tensor& qkv,
                                  const at::Tensor& out, const at::Tensor& log_sum,
                                  const AttentionShape& shape, const AttentionContext& context);

// Rotates the queries and keys of qkv in place (direction −1: back). Float and bf16 on any CPU.
void rotate_cpu(const at::Tensor& qkv, const AttentionShape& shape, const AttentionContext& context,
                float direction);

}  // namespace sauropod::ops

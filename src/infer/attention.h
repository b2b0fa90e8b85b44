// Attention of new tokens to all that their sequence has read.
#pragma once

#include "ops/attention.h"

namespace sauropod::infer {

// qkv [T, (heads + 2 kv_heads) · D]: the last T tokens of one sequence, rotated; keys and values
// [kv_heads, n, D] of all its n >= T tokens, these included -> [T, heads · D]. Of `shape` only the heads
// count.
at::Tensor cached_attention(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& values,
                            const ops::AttentionShape& shape);

}  // namespace sauropod::infer

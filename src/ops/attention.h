// Causal self-attention over packed queries, keys and values.
#pragma once

#include "ops/weight.h"

namespace sauropod::ops {

struct AttentionShape {
  int64_t sequences = 0;
  int64_t length = 0;    // T, tokens of a sequence
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // key/value heads; divides heads
  int64_t head_size = 0; // D
};

// What attention needs beside qkv; each may be undefined.
struct AttentionContext {
  // [sequences, length] int32: the first position that a token sees (its document's beginning).
  at::Tensor first;
  // [context, D/2] float: rotary angles (Su et al., 2021), looked up by the position in the sequence,
  // or in the document where `first` is given.
  at::Tensor cosine, sine;
};

// qkv [sequences · T, (heads + 2 kv_heads) · D], each row the query heads, then the key heads, then the
// value heads -> [sequences · T, heads · D]. Scores are scaled by 1/√D. Where rotary angles are given the
// queries and keys in qkv are rotated in place: qkv must be fresh and is not to be used afterwards.
// Differentiable in qkv.
at::Tensor attention(const at::Tensor& qkv, const AttentionShape& shape,
                     const AttentionContext& context);

// Rotates in place the query and key heads of qkv [tokens, (heads + 2 kv_heads) · D], whose tokens stand
// at `positions` [tokens] int32 of the angles, as attention() does. For inference: not differentiable.
void rotate(const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& positions,
            const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace sauropod::ops

// The keys and values of what sequences have read.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/parameter_memory.h"

namespace sauropod::infer {

// Slots of `capacity` tokens, one for each sequence; memory is touched as tokens arrive. Keys are kept
// rotated. Not thread-safe.
class KeyValueCache {
 public:
  // In the type and on the device of the weights in `memory`.
  KeyValueCache(const model::ModelOptions& options, const model::ParameterMemory& memory,
                int64_t slots, int64_t capacity);

  int64_t slots() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  // Tokens that the sequence in a slot has read.
  int64_t length(int64_t slot) const { return lengths_[static_cast<size_t>(slot)]; }

  // Puts keys and values [tokens, kv_heads, D] of one layer behind what the slot holds. The length grows
  // with advance(), once every layer has written.
  void write(int64_t layer, int64_t slot, const at::Tensor& keys, const at::Tensor& values);
  void advance(int64_t slot, int64_t tokens);

  // The first `tokens` of a slot, [kv_heads, tokens, D].
  at::Tensor keys(int64_t layer, int64_t slot, int64_t tokens) const;
  at::Tensor values(int64_t layer, int64_t slot, int64_t tokens) const;

  // Makes `to` a copy of `from`: several continuations of one beginning.
  void copy(int64_t from, int64_t to);
  // Forgets all but the first `length` tokens of a slot; 0 frees it for another sequence.
  void truncate(int64_t slot, int64_t length);

 private:
  int64_t capacity_;
  std::vector<int64_t> lengths_;
  at::Tensor memory_;  // [layers, 2 (keys, values), slots, kv_heads, capacity, D]
};

}  // namespace sauropod::infer

#include "infer/cache.h"

#include <ATen/ops/empty.h>

#include "base/error.h"

namespace sauropod::infer {

KeyValueCache::KeyValueCache(const model::ModelOptions& options,
                             const model::ParameterMemory& memory, int64_t slots, int64_t capacity)
    : capacity_(capacity), lengths_(static_cast<size_t>(slots), 0) {
  SAUROPOD_CHECK(slots > 0 && capacity > 0 && capacity <= options.context);
  memory_ = at::empty({options.layers, 2, slots, options.kv_heads, capacity, options.head_size},
                      memory.weights().options());
}

void KeyValueCache::write(int64_t layer, int64_t slot, const at::Tensor& keys,
                          const at::Tensor& values) {
  const int64_t tokens = keys.size(0), begin = length(slot);
  SAUROPOD_CHECK(begin + tokens <= capacity_, "{} + {} tokens, capacity {}", begin, tokens,
                 capacity_);
  const at::Tensor place = memory_[layer].select(1, slot).narrow(2, begin, tokens);
  place[0].copy_(keys.transpose(0, 1));
  place[1].copy_(values.transpose(0, 1));
}

void KeyValueCache::advance(int64_t slot, int64_t tokens) {
  lengths_[static_cast<size_t>(slot)] += tokens;
}

at::Tensor KeyValueCache::keys(int64_t layer, int64_t slot, int64_t tokens) const {
  return memory_[layer][0][slot].narrow(1, 0, tokens);
}

at::Tensor KeyValueCache::values(int64_t layer, int64_t slot, int64_t tokens) const {
  return memory_[layer][1][slot].narrow(1, 0, tokens);
}

void KeyValueCache::copy(int64_t from, int64_t to) {
  const int64_t tokens = length(from);
  const auto part = [&](int64_t slot) { return memory_.select(2, slot).narrow(3, 0, tokens); };
  part(to).copy_(part(from));
  lengths_[static_cast<size_t>(to)] = tokens;
}

void KeyValueCache::truncate(int64_t slot, int64_t length) {
  SAUROPOD_CHECK(length >= 0 && length <= this->length(slot));
  lengths_[static_cast<size_t>(slot)] = length;
}

}  // namespace sauropod::infer

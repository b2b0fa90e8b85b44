#include "ops/cross_entropy_cpu.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "ops/cpu.h"

namespace sauropod::ops {

void cross_entropy_cpu(const at::Tensor& logits, const int32_t* targets, float scale, float z_loss,
                       float* nats, float* log_sum) {
  const int64_t vocabulary = logits.size(1);
  for (int64_t row = 0; row < logits.size(0); ++row)
    if (targets[row] >= vocabulary)
      base::fail("target {} is outside the model's vocabulary of {}: was the data packed with another "
                 "tokenizer?",
                 targets[row], vocabulary);
  with_element_type(logits, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* values = elements<T>(logits) + row * vocabulary;
        if (targets[row] < 0) {
          nats[row] = log_sum[row] = 0;
          if (scale != 0) pointwise<T>().scale(vocabulary, values, 0.0f, values);
          continue;
        }
        const CrossEntropyRow result =
            pointwise<T>().cross_entropy(vocabulary, values, targets[row], scale, z_loss);
        nats[row] = result.loss;
        log_sum[row] = result.log_sum;
      }
    });
  });
}

}  // namespace sauropod::ops

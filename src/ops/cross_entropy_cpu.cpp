#include "ops/cross_entropy_cpu.h"

#include <ATen/Parallel.h>

#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

// Rows of logits of items [first_item, first_item + width).
template <typename T>
struct Rows {
  int64_t width;
  int64_t first_item;
  T* logits;
  const int32_t* targets;

  // The target's place among the logits; negative where they don't have it.
  int64_t place(int64_t row) const {
    const int64_t at = targets[row] - first_item;
    return at < width ? at : -1;
  }
  CrossEntropyRow statistics(int64_t row) const {
    if (targets[row] < 0) return {};
    return pointwise<T>().cross_entropy_statistics(width, logits + row * width, place(row));
  }
  void gradient(int64_t row, float log_sum, float scale, float z_loss) const {
    T* values = logits + row * width;
    if (targets[row] < 0) {
      pointwise<T>().scale(width, values, 0.0f, values);
    } else {
      pointwise<T>().cross_entropy_gradient(width, values, place(row), log_sum, scale, z_loss);
    }
  }
};

// Calls function(rows, row) for each row, on all threads.
template <typename Function>
void for_rows(const at::Tensor& logits, const int32_t* targets, int64_t first_item,
              const Function& function) {
  with_element_type(logits, [&](auto type) {
    using T = decltype(type);
    const Rows<T> rows{logits.size(1), first_item, elements<T>(logits), targets};
    at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) function(rows, row);
    });
  });
}

}  // namespace

void cross_entropy_cpu(const at::Tensor& logits, const int32_t* targets, float scale, float z_loss,
                       float* nats, float* log_sum) {
  // Both passes over a row while it is in the cache.
  for_rows(logits, targets, 0, [&](const auto& rows, int64_t row) {
    const CrossEntropyRow found = rows.statistics(row);
    log_sum[row] = found.log_sum;
    nats[row] = found.log_sum - found.target_logit;
    if (scale != 0) rows.gradient(row, found.log_sum, scale, z_loss);
  });
}

void cross_entropy_statistics_cpu(const at::Tensor& logits, const int32_t* targets, int64_t first_item,
                                  float* log_sum, float* target_logit) {
  for_rows(logits, targets, first_item, [&](const auto& rows, int64_t row) {
    const CrossEntropyRow found = rows.statistics(row);
    log_sum[row] = found.log_sum;
    target_logit[row] = found.target_logit;
  });
}

void cross_entropy_gradient_cpu(const at::Tensor& logits, const int32_t* targets, int64_t first_item,
                                const float* log_sum, float scale, float z_loss) {
  for_rows(logits, targets, first_item, [&](const auto& rows, int64_t row) {
    rows.gradient(row, log_sum[row], scale, z_loss);
  });
}

}  // namespace sauropod::ops

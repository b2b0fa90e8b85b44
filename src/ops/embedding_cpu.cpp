// Embeddings on the CPU. In the backward pass each thread owns the rows of the table with its residue,
// so that a row's sum is in the order of the tokens for any number of threads.
#include "ops/embedding_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kOwners = 16;

}  // namespace

at::Tensor embedding_forward_cpu(const at::Tensor& rows, const at::Tensor& places,
                                 const at::Tensor& token_weight,
                                 const at::Tensor& position_weight) {
  const int64_t tokens = rows.size(0), width = token_weight.size(1), size = token_weight.size(0);
  const at::Tensor x = at::empty({tokens, width}, token_weight.options());
  with_element_type(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, tokens, row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32_t row = elements<int32_t>(rows)[i];
        const T* token = row >= 0 && row < size ? elements<T>(token_weight) + row * width : nullptr;
        const T* place = places.defined() ? elements<T>(position_weight) +
                                                elements<int32_t>(places)[i] * width
                                          : nullptr;
        T* out = elements<T>(x) + i * width;
        if (token != nullptr) {
          pointwise<T>().add(width, token, place, out);
        } else if (place != nullptr) {
          pointwise<T>().add(width, place, nullptr, out);
        } else {
          std::fill_n(out, width, T{});
        }
      }
    });
  });
  return x;
}

void embedding_backward_cpu(const at::Tensor& dx, const at::Tensor& rows, const Weight& weight) {
  if (!weight.wants_gradient()) return;
  const int64_t tokens = dx.size(0), width = dx.size(1), size = weight.value.size(0);
  with_element_type(dx, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, kOwners, 1, [&](int64_t begin, int64_t end) {
      const int32_t* ids = elements<int32_t>(rows);
      for (int64_t i = 0; i < tokens; ++i)
        if (ids[i] >= 0 && ids[i] < size && ids[i] % kOwners >= begin && ids[i] % kOwners < end)
          pointwise<T>().accumulate(width, elements<T>(dx) + i * width,
                                    elements<float>(weight.gradient) + ids[i] * width);
    });
  });
}

}  // namespace sauropod::ops

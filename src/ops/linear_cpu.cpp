// The CPU side of the linear layer's weight gradient: gemm.h in float, a kernel of its own in bf16
// (weight_gradient_kernel.h). The division among threads does not change any sum.
#include "ops/linear_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/cpu.h"
#include "ops/gemm.h"
#include "ops/weight_gradient_kernel.h"

namespace sauropod::ops {
namespace {

void accumulate_bf16(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gradient,
                     float* bias_gradient) {
  const int64_t tokens = x.size(0), n = x.size(1), m = dy.size(1);
  const auto bytes = x.options().dtype(at::kByte);
  const at::Tensor packed = at::empty({2 * packed_elements(std::min(tokens, kGradientTokens), n)}, bytes);
  const int64_t panels = (n + 63) / 64, blocks = (m + kGradientRows - 1) / kGradientRows;
  for (int64_t first = 0; first < tokens; first += kGradientTokens) {
    const int64_t count = std::min(kGradientTokens, tokens - first);
    const auto* x_rows = elements<uint16_t>(x) + first * n;
    const auto* dy_rows = elements<uint16_t>(dy) + first * m;
    at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
      pack_gradient_input_avx512(x_rows, n, count, n, 64 * begin, std::min(64 * end, n),
                                 elements<uint16_t>(packed));
    });
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const at::Tensor scratch = at::empty({gradient_scratch_bytes()}, bytes);
      for (int64_t block = begin; block < end; ++block) {
        const int64_t row = block * kGradientRows;
        accumulate_gradient_avx512(dy_rows + row, m, count, std::min(kGradientRows, m - row), n,
                                   elements<uint16_t>(packed), elements<float>(gradient) + row * n,
                                   n, bias_gradient == nullptr ? nullptr : bias_gradient + row,
                                   scratch.data_ptr());
      }
    });
  }
}

}  // namespace

void column_sums_cpu(const at::Tensor& x, const at::Tensor& sums) {
  const int64_t rows = x.size(0), width = x.size(1);
  constexpr int64_t kColumns = 64;
  with_element_type(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, (width + kColumns - 1) / kColumns, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kColumns, last = std::min(end * kColumns, width);
      pointwise<T>().column_sums(rows, last - first, elements<T>(x) + first, width,
                                 elements<float>(sums) + first);
    });
  });
}

bool accumulate_linear_gradient_cpu(const at::Tensor& dy, const at::Tensor& x, const Weight& weight,
                                    const Weight& bias) {
  if (!has_kernels(dy) || dy.scalar_type() != x.scalar_type()) return false;
  if (dy.scalar_type() == at::kFloat) {
    add_transposed_times(weight.gradient, dy, x);
    if (bias.wants_gradient()) column_sums_cpu(dy, bias.gradient);
    return true;
  }
  if (!have_avx512_bf16() || x.size(1) % 16 != 0) return false;
  accumulate_bf16(dy, x, weight.gradient,
                  bias.wants_gradient() ? elements<float>(bias.gradient) : nullptr);
  return true;
}

}  // namespace sauropod::ops

// Divides a float matrix product among threads. The division changes which thread computes an element
// and never the order of its sum.
#include "ops/gemm_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "ops/cpu.h"
#include "ops/gemm_kernel.h"

namespace sauropod::ops {
namespace {

// Columns packed at once: with the full depth 8 MiB, which the last-level cache holds.
constexpr int64_t kColumns = 4096;

int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// Rows of a left block, so that all threads get the same number of blocks.
int64_t block_rows(int64_t m) {
  const int64_t threads = at::get_num_threads();
  const int64_t blocks = round_up((m + kGemmRows - 1) / kGemmRows, threads);
  return std::min(kGemmRows, round_up((m + blocks - 1) / blocks, 6));
}

}  // namespace

bool have_gemm(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && have_avx512_bf16();
}

void gemm_f32(const at::Tensor& c, const at::Tensor& a, bool a_transposed, const at::Tensor& b,
              bool b_transposed, bool accumulate) {
  const int64_t m = c.size(0), n = c.size(1), k = a.size(a_transposed ? 0 : 1);
  SAUROPOD_CHECK(a.size(a_transposed ? 1 : 0) == m && b.size(b_transposed ? 1 : 0) == k &&
                 b.size(b_transposed ? 0 : 1) == n);
  SAUROPOD_CHECK(a.stride(1) == 1 && b.stride(1) == 1 && c.stride(1) == 1);
  // Passes of equal depth, in whole vectors.
  const int64_t passes = (k + kGemmDepth - 1) / kGemmDepth;
  const int64_t depth = std::min(kGemmDepth, round_up((k + passes - 1) / passes, 16));
  const int64_t rows = block_rows(m), blocks = (m + rows - 1) / rows;
  const at::Tensor packed =
      at::empty({std::min(round_up(n, kGemmPanel), kColumns) * depth}, c.options());
  float* panels = elements<float>(packed);

  for (int64_t column = 0; column < n; column += kColumns)
    for (int64_t first = 0; first < k; first += depth) {
      const int64_t steps = std::min(depth, k - first);
      const int64_t columns = std::min(kColumns, n - column);
      const int64_t panel_count = (columns + kGemmPanel - 1) / kGemmPanel;
      const int64_t b_at = b_transposed ? column * b.stride(0) + first : first * b.stride(0) + column;
      const GemmOperand right{elements<float>(b) + b_at, b.stride(0), b_transposed};
      at::parallel_for(0, panel_count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel)
          pack_panel_avx512(right, steps, columns, panel * kGemmPanel,
                            panels + panel * kGemmPanel * depth);
      });
      at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
        at::Tensor left;
        if (a_transposed) left = at::empty({kGemmRows * kGemmDepth}, c.options());
        for (int64_t block = begin; block < end; ++block) {
          const int64_t row = block * rows, count = std::min(rows, m - row);
          const float* a_rows = elements<float>(a) + row * a.stride(0) + first;
          int64_t a_stride = a.stride(0);
          if (a_transposed) {
            pack_rows_avx512({elements<float>(a) + first * a.stride(0) + row, a.stride(0), true},
                             count, steps, elements<float>(left));
            a_rows = elements<float>(left);
            a_stride = kGemmDepth;
          }
          for (int64_t panel = 0; panel < panel_count; ++panel)
            multiply_panel_avx512(count, std::min(kGemmPanel, columns - panel * kGemmPanel), steps,
                                  a_rows, a_stride, panels + panel * kGemmPanel * depth,
                                  elements<float>(c) + row * c.stride(0) + column +
                                      panel * kGemmPanel,
                                  c.stride(0), accumulate || first > 0);
        }
      });
    }
}

}  // namespace sauropod::ops

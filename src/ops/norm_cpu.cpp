// Normalisation on the CPU. The gradients of weight and bias are summed over a fixed number of row
// blocks, then over the blocks in order: the sums do not depend on the number of threads.
#include "ops/norm_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kRowBlocks = 16;

}  // namespace

NormResult norm_forward_cpu(const at::Tensor& x_in, const at::Tensor& delta_in, const Weight& weight,
                            const Weight& bias, NormKind kind, double epsilon) {
  const at::Tensor x = x_in.contiguous();
  const at::Tensor delta = delta_in.defined() ? delta_in.contiguous() : delta_in;
  const int64_t rows = x.size(0), width = x.size(1);
  NormResult result;
  result.sum = delta.defined() ? at::empty_like(x) : x;
  result.y = at::empty_like(x);
  result.mean = at::empty({rows}, x.options().dtype(at::kFloat));
  result.rstd = at::empty_like(result.mean);
  with_element_type(x, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, row_grain(width), [&](int64_t begin, int64_t end) {
      NormForward<T> task;
      task.rows = end - begin;
      task.width = width;
      task.rms = kind == NormKind::rms;
      task.epsilon = static_cast<float>(epsilon);
      task.x = elements<T>(x) + begin * width;
      if (delta.defined()) task.delta = elements<T>(delta) + begin * width;
      task.weight = elements<T>(weight.value);
      task.bias = elements<T>(bias.value);
      task.sum = elements<T>(result.sum) + begin * width;
      task.y = elements<T>(result.y) + begin * width;
      task.mean = elements<float>(result.mean) + begin;
      task.rstd = elements<float>(result.rstd) + begin;
      pointwise<T>().norm_forward(task);
    });
  });
  return result;
}

at::Tensor norm_backward_cpu(const NormResult& result, const at::Tensor& dy, const at::Tensor& d_sum,
                             const Weight& weight, const Weight& bias, NormKind kind) {
  const int64_t rows = dy.size(0), width = dy.size(1);
  const int64_t block_rows = (rows + kRowBlocks - 1) / kRowBlocks;
  const at::Tensor dx = at::empty_like(dy);
  const at::Tensor partial =
      at::zeros({kRowBlocks, 2, width}, dy.options().dtype(at::kFloat));
  with_element_type(dy, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, kRowBlocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = std::min(block * block_rows, rows);
        NormBackward<T> task;
        task.rows = std::min(first + block_rows, rows) - first;
        task.width = width;
        task.rms = kind == NormKind::rms;
        task.sum = elements<T>(result.sum) + first * width;
        task.dy = elements<T>(dy) + first * width;
        if (d_sum.defined()) task.d_sum = elements<T>(d_sum) + first * width;
        task.weight = elements<T>(weight.value);
        task.mean = elements<float>(result.mean) + first;
        task.rstd = elements<float>(result.rstd) + first;
        task.dx = elements<T>(dx) + first * width;
        task.d_weight = elements<float>(partial) + block * 2 * width;
        task.d_bias = task.d_weight + width;
        pointwise<T>().norm_backward(task);
      }
    });
  });
  for (int64_t block = 0; block < kRowBlocks; ++block) {
    const float* sums = elements<float>(partial) + block * 2 * width;
    if (weight.wants_gradient())
      pointwise<float>().accumulate(width, sums, elements<float>(weight.gradient));
    if (bias.wants_gradient())
      pointwise<float>().accumulate(width, sums + width, elements<float>(bias.gradient));
  }
  return dx;
}

}  // namespace sauropod::ops

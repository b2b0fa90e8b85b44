#include "ops/gemm.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "ops/cpu.h"
#include "ops/gemm_cpu.h"

namespace sauropod::ops {
namespace {

void add_bias(const at::Tensor& y, const at::Tensor& bias) {
  const int64_t width = y.size(1);
  at::parallel_for(0, y.size(0), row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* values = elements<float>(y) + row * width;
      pointwise<float>().add(width, values, elements<float>(bias), values);
    }
  });
}

}  // namespace

at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  if (!have_gemm(x)) return at::linear(x, weight, bias);
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  gemm_f32(y, x.contiguous(), false, weight, true, false);
  if (bias.defined()) add_bias(y, bias);
  return y;
}

void times_transposed_out(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  if (have_gemm(x)) {
    gemm_f32(y, x, false, weight, true, false);
  } else {
    at::Tensor out = y;
    at::mm_out(out, x, weight.t());
  }
}

at::Tensor times(const at::Tensor& y, const at::Tensor& weight) {
  const at::Tensor x = at::empty({y.size(0), weight.size(1)}, y.options());
  times_out(x, y, weight);
  return x;
}

void times_out(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  if (have_gemm(y)) {
    gemm_f32(x, y, false, weight, false, false);
  } else {
    at::Tensor out = x;
    at::mm_out(out, y, weight);
  }
}

void add_transposed_times(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  if (have_gemm(y)) {
    gemm_f32(sum, y, true, x, false, true);
  } else {
    sum.addmm_(y.t(), x);
  }
}

}  // namespace sauropod::ops

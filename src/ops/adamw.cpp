#include "ops/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kPiece = 1 << 16;

// Elements at a time where ATen's operations make temporaries.
constexpr int64_t kAtenPiece = int64_t{1} << 24;

void split_aten(const at::Tensor& master, const at::Tensor& weights, const at::Tensor& low) {
  const at::Tensor bits = master.contiguous().view(at::kInt);
  weights.view(at::kShort).copy_(bits.add(0x8000).__rshift__(16));
  if (low.defined()) low.copy_(bits);  // the conversion keeps the lower half
}

at::Tensor join_aten(const at::Tensor& weights, const at::Tensor& low) {
  const at::Tensor high = weights.view(at::kShort).to(at::kInt).__lshift__(16);
  return high.add(low.to(at::kInt)).view(at::kFloat);
}

void adamw_aten(const AdamW& o, const AdamWBuffers& b) {
  const at::Tensor master = b.low.defined() ? join_aten(b.weights, b.low) : b.weights;
  const at::Tensor g = b.gradient.mul(o.gradient_scale);
  b.moment1.mul_(o.beta1).add_(g, 1.0 - o.beta1);
  b.moment2.mul_(o.beta2).addcmul_(g, g, 1.0 - o.beta2);
  const at::Tensor root = b.moment2.div(o.correction2).sqrt().add_(o.epsilon);
  master.mul_(1.0 - o.rate * o.decay).addcdiv_(b.moment1, root, -o.rate / o.correction1);
  if (b.low.defined()) split_aten(master, b.weights, b.low);
  b.gradient.zero_();
}

AdamWBuffers part(const AdamWBuffers& buffers, int64_t begin, int64_t end) {
  const auto range = [&](const at::Tensor& x) {
    return x.defined() ? x.narrow(0, begin, end - begin) : x;
  };
  return {range(buffers.gradient), range(buffers.weights), range(buffers.low),
          range(buffers.moment1), range(buffers.moment2)};
}

}  // namespace

void adamw(const AdamW& options, int64_t begin, int64_t end, const AdamWBuffers& b) {
  const at::NoGradGuard no_grad;
  SAUROPOD_CHECK(b.low.defined() == (b.weights.scalar_type() == at::kBFloat16));
  if (b.gradient.is_meta()) return;
  if (!has_kernels(b.gradient)) {
    for (int64_t first = begin; first < end; first += kAtenPiece)
      adamw_aten(options, part(b, first, std::min(first + kAtenPiece, end)));
    return;
  }
  at::parallel_for(begin, end, kPiece, [&](int64_t first, int64_t last) {
    float* gradient = elements<float>(b.gradient) + first;
    float* moment1 = elements<float>(b.moment1) + first;
    float* moment2 = elements<float>(b.moment2) + first;
    if (b.low.defined()) {
      pointwise_kernels().adamw_split(options, last - first, gradient,
                                      elements<Bf16>(b.weights) + first,
                                      elements<uint16_t>(b.low) + first, moment1, moment2);
    } else {
      pointwise_kernels().adamw(options, last - first, gradient, elements<float>(b.weights) + first,
                                moment1, moment2);
    }
  });
}

void split_master(const at::Tensor& master, const at::Tensor& weights, const at::Tensor& low) {
  const at::NoGradGuard no_grad;
  SAUROPOD_CHECK(master.is_contiguous() && weights.is_contiguous() &&
                 master.scalar_type() == at::kFloat && weights.scalar_type() == at::kBFloat16);
  if (master.is_meta()) return;
  if (!has_kernels(master)) {
    split_aten(master, weights, low);
    return;
  }
  at::parallel_for(0, master.numel(), kPiece, [&](int64_t begin, int64_t end) {
    pointwise_kernels().split_master(
        end - begin, elements<float>(master) + begin, elements<Bf16>(weights) + begin,
        low.defined() ? elements<uint16_t>(low) + begin : nullptr);
  });
}

void join_master(const at::Tensor& weights, const at::Tensor& low, const at::Tensor& master) {
  const at::NoGradGuard no_grad;
  SAUROPOD_CHECK(master.is_contiguous() && weights.is_contiguous() && low.is_contiguous() &&
                 master.scalar_type() == at::kFloat && weights.scalar_type() == at::kBFloat16);
  if (master.is_meta()) return;
  if (!has_kernels(master)) {
    master.copy_(join_aten(weights, low));
    return;
  }
  at::parallel_for(0, master.numel(), kPiece, [&](int64_t begin, int64_t end) {
    pointwise_kernels().join_master(end - begin, elements<Bf16>(weights) + begin,
                                    elements<uint16_t>(low) + begin,
                                    elements<float>(master) + begin);
  });
}

double sum_of_squares(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  if (x.is_meta()) return 0;
  if (!has_kernels(x)) return x.to(at::kDouble).square().sum().item<double>();
  const int64_t size = x.numel(), pieces = (size + kPiece - 1) / kPiece;
  std::vector<double> sums(static_cast<size_t>(pieces));
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPiece;
      sums[static_cast<size_t>(piece)] = pointwise_kernels().sum_of_squares(
          std::min(kPiece, size - first), elements<float>(x) + first);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace sauropod::ops

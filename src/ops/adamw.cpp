#include "ops/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "base/error.h"
#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kPiece = 1 << 16;

void adamw_aten(const AdamW& o, const at::Tensor& gradient, const at::Tensor& master,
                const at::Tensor& moment1, const at::Tensor& moment2, const at::Tensor& weights) {
  const at::Tensor g = gradient.mul(o.gradient_scale);
  moment1.mul_(o.beta1).add_(g, 1.0 - o.beta1);
  moment2.mul_(o.beta2).addcmul_(g, g, 1.0 - o.beta2);
  const at::Tensor root = moment2.div(o.correction2).sqrt().add_(o.epsilon);
  master.mul_(1.0 - o.rate * o.decay).addcdiv_(moment1, root, -o.rate / o.correction1);
  if (weights.defined()) weights.copy_(master);
  gradient.zero_();
}

}  // namespace

void adamw(const AdamW& options, int64_t begin, int64_t end, const at::Tensor& gradient,
           const at::Tensor& master, const at::Tensor& moment1, const at::Tensor& moment2,
           const at::Tensor& weights) {
  const at::NoGradGuard no_grad;
  if (!has_kernels(master)) {
    const auto range = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, begin, end - begin) : x;
    };
    adamw_aten(options, range(gradient), range(master), range(moment1), range(moment2),
               range(weights));
    return;
  }
  at::parallel_for(begin, end, kPiece, [&](int64_t first, int64_t last) {
    pointwise_kernels().adamw(options, last - first, elements<float>(gradient) + first,
                              elements<float>(master) + first, elements<float>(moment1) + first,
                              elements<float>(moment2) + first,
                              weights.defined() ? elements<Bf16>(weights) + first : nullptr);
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

void round_to_bf16(const at::Tensor& master, const at::Tensor& weights) {
  const at::NoGradGuard no_grad;
  if (!has_kernels(master)) {
    weights.copy_(master);
    return;
  }
  at::parallel_for(0, master.numel(), kPiece, [&](int64_t begin, int64_t end) {
    pointwise_kernels().round_to_bf16(end - begin, elements<float>(master) + begin,
                                      elements<Bf16>(weights) + begin);
  });
}

}  // namespace sauropod::ops

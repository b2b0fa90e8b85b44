#include "train/gemm_rate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>

namespace sauropod::train {

double measure_gemm_rate(at::ScalarType type, at::Device device) {
  using Clock = std::chrono::steady_clock;
  const at::NoGradGuard no_grad;
  constexpr int64_t kSize = 1024;
  const auto options = at::TensorOptions().dtype(type).device(device);
  const at::Tensor a = at::ones({kSize, kSize}, options), b = at::ones({kSize, kSize}, options);
  at::Tensor c = at::mm(a, b);
  double best = 1e30;
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    at::mm_out(c, a, b);
    // Reading one element waits for a GPU.
    c[0][0].item<double>();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return 2.0 * kSize * kSize * kSize / best;
}

}  // namespace sauropod::train

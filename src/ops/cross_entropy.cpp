// The output layer and the loss over chunks of tokens.
#include "ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "base/error.h"
#include "ops/cpu.h"
#include "ops/cross_entropy_cpu.h"
#include "ops/gemm.h"
#include "ops/linear.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

class CrossEntropyBackward : public Node {
 public:
  explicit CrossEntropyBackward(at::Tensor dx) : Node("LinearCrossEntropy"), dx_(std::move(dx)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    SAUROPOD_CHECK(gradients[0].is_meta() || gradients[0].item<double>() == 1.0,
                   "the loss must be the root of the backward pass: its gradients are computed "
                   "forward, and scaling is CrossEntropyOptions::scale");
    return {std::move(dx_)};
  }

 private:
  at::Tensor dx_;
};

// logits [rows, V] in, nats and log_sum [rows] out; with scale the logits become their gradient.
void cross_entropy_aten(const at::Tensor& logits, const at::Tensor& targets, double scale,
                        double z_loss, const at::Tensor& nats, const at::Tensor& log_sum) {
  if (logits.is_meta()) return;
  const at::ScalarType type = nats.scalar_type();
  const at::Tensor wide = logits.to(type);
  const at::Tensor kept = targets.ge(0).to(type);  // 0 for targets that are left out
  const at::Tensor index = targets.clamp_min(0).to(at::kLong).unsqueeze(1);
  const at::Tensor sums = at::logsumexp(wide, {1});
  log_sum.copy_(sums.mul(kept));
  nats.copy_(sums.sub(wide.gather(1, index).squeeze(1)).mul(kept));
  if (scale == 0) return;
  const at::Tensor row_scale = sums.mul(2 * z_loss).add(1).mul(kept).mul(scale);
  at::Tensor gradient = wide.sub(sums.unsqueeze(1)).exp().mul(row_scale.unsqueeze(1));
  gradient.scatter_add_(1, index, kept.mul(-scale).unsqueeze(1));
  logits.copy_(gradient);
}

}  // namespace

int64_t default_chunk(int64_t tokens, int64_t vocabulary, int64_t element_bytes) {
  constexpr int64_t kTokens = 1024;
  const int64_t elements = (element_bytes >= 4 ? int64_t{112} : int64_t{64}) << 20;
  const int64_t fitting = std::min(kTokens, elements / vocabulary);
  // Whole multiples of 64 keep the products' blocks full.
  return std::min(tokens, std::max<int64_t>(64, fitting / 64 * 64));
}

CrossEntropy linear_cross_entropy(const at::Tensor& x, const Weight& weight,
                                  const at::Tensor& targets, const CrossEntropyOptions& options) {
  SAUROPOD_CHECK(x.dim() == 2 && targets.dim() == 1 && targets.size(0) == x.size(0) &&
                 targets.scalar_type() == at::kInt && x.size(1) == weight.value.size(1));
  SAUROPOD_CHECK(!options.gradients || options.scale != 0);
  const int64_t tokens = x.size(0), vocabulary = weight.value.size(0);
  const int64_t chunk =
      options.chunk > 0 ? options.chunk
                        : default_chunk(tokens, vocabulary, x.element_size());
  const double scale = options.gradients ? options.scale : 0;
  const auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const bool kernels = has_kernels(x);

  at::Tensor nats, log_sum, dx;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor rows = x.detach().contiguous();
    nats = at::empty({tokens}, rows.options().dtype(type));
    log_sum = at::empty({tokens}, nats.options());
    if (options.gradients) dx = at::empty({tokens, x.size(1)}, rows.options());
    const at::Tensor buffer = at::empty({std::min(chunk, tokens), vocabulary}, rows.options());
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t count = std::min(chunk, tokens - begin);
      const at::Tensor part = rows.narrow(0, begin, count);
      const at::Tensor logits = buffer.narrow(0, 0, count);
      times_transposed_out(logits, part, weight.value);
      if (kernels) {
        cross_entropy_cpu(logits, elements<int32_t>(targets) + begin, static_cast<float>(scale),
                          static_cast<float>(options.z_loss), elements<float>(nats) + begin,
                          elements<float>(log_sum) + begin);
      } else {
        cross_entropy_aten(logits, targets.narrow(0, begin, count), scale, options.z_loss,
                           nats.narrow(0, begin, count), log_sum.narrow(0, begin, count));
      }
      if (!options.gradients) continue;
      accumulate_linear_gradient(logits, part, weight);
      times_out(dx.narrow(0, begin, count), logits, weight.value);
    }
  }
  CrossEntropy result;
  {
    const at::NoGradGuard no_grad;
    // Sums of many tokens are formed in double.
    at::Tensor sum = nats.sum(at::kDouble);
    if (options.z_loss != 0) sum = sum.add(log_sum.square().sum(at::kDouble).mul(options.z_loss));
    result.loss = sum.mul(options.scale).to(type);
    result.nats = nats;
  }
  if (options.gradients && recording())
    attach(c10::make_intrusive<CrossEntropyBackward>(std::move(dx)), {x}, {result.loss});
  return result;
}

}  // namespace sauropod::ops

// Normalisation: checks, the graph node, and the form in ATen's operations (any type and device).
#include "ops/norm.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>

#include "base/error.h"
#include "ops/cpu.h"
#include "ops/node.h"
#include "ops/norm_cpu.h"

namespace sauropod::ops {
namespace {

// Statistics of bf16 and half are kept in float.
at::ScalarType statistics_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

NormResult forward_aten(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                        const Weight& bias, NormKind kind, double epsilon) {
  NormResult result;
  result.sum = delta.defined() ? x.add(delta) : x;
  const at::Tensor wide = result.sum.to(statistics_type(x));
  result.mean = kind == NormKind::rms ? wide.new_zeros({wide.size(0)}) : wide.mean({1});
  const at::Tensor centred = wide.sub(result.mean.unsqueeze(1));
  result.rstd = centred.square().mean({1}).add(epsilon).rsqrt();
  at::Tensor y = centred.mul(result.rstd.unsqueeze(1)).mul(weight.value);
  if (bias.defined()) y = y.add(bias.value);
  result.y = y.to(x.scalar_type());
  return result;
}

at::Tensor backward_aten(const NormResult& result, const at::Tensor& dy, const at::Tensor& d_sum,
                         const Weight& weight, const Weight& bias, NormKind kind) {
  const at::ScalarType type = statistics_type(dy);
  const at::Tensor rstd = result.rstd.unsqueeze(1);
  const at::Tensor normal = result.sum.to(type).sub(result.mean.unsqueeze(1)).mul(rstd);
  const at::Tensor wide = dy.to(type);
  if (weight.wants_gradient()) weight.gradient.add_(wide.mul(normal).sum({0}));
  if (bias.wants_gradient()) bias.gradient.add_(wide.sum({0}));
  const at::Tensor g = wide.mul(weight.value);
  at::Tensor dx = g.sub(normal.mul(g.mul(normal).mean({1}, /*keepdim=*/true)));
  if (kind == NormKind::layer) dx = dx.sub(g.mean({1}, /*keepdim=*/true));
  dx = dx.mul(rstd);
  if (d_sum.defined()) dx = dx.add(d_sum);
  return dx.to(dy.scalar_type());
}

class NormBackwardNode : public Node {
 public:
  NormBackwardNode(NormResult result, Weight weight, Weight bias, NormKind kind)
      : Node("AddNorm"),
        result_(std::move(result)),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        kind_(kind) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& d_sum = gradients[0];
    SAUROPOD_CHECK(gradients[1].defined(), "the normalised output was not used");
    const at::Tensor dy = gradients[1].contiguous();
    const at::Tensor dx =
        has_kernels(dy)
            ? norm_backward_cpu(result_, dy, d_sum.defined() ? d_sum.contiguous() : d_sum, weight_,
                                bias_, kind_)
            : backward_aten(result_, dy, d_sum, weight_, bias_, kind_);
    result_ = {};
    return {dx, dx};
  }

 private:
  NormResult result_;
  Weight weight_, bias_;
  NormKind kind_;
};

}  // namespace

Normalized add_norm(const at::Tensor& x, const at::Tensor& delta, const Weight& weight,
                    const Weight& bias, NormKind kind, double epsilon) {
  SAUROPOD_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(0));
  SAUROPOD_CHECK(!delta.defined() || delta.sizes() == x.sizes());
  NormResult result;
  {
    const at::NoGradGuard no_grad;
    result = has_kernels(x) ? norm_forward_cpu(x, delta, weight, bias, kind, epsilon)
                            : forward_aten(x, delta, weight, bias, kind, epsilon);
  }
  if (!recording()) return {result.sum, result.y};
  // Without a delta the residual stream is x: a new tensor over the same memory, so that this node is
  // its origin.
  if (!delta.defined()) result.sum = result.sum.detach();
  const Normalized outputs{result.sum, result.y};
  NormResult kept{result.sum.detach(), {}, result.mean, result.rstd};
  attach(c10::make_intrusive<NormBackwardNode>(std::move(kept), weight, bias, kind), {x, delta},
         {outputs.sum, outputs.y});
  return outputs;
}

}  // namespace sauropod::ops

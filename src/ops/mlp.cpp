// The feed-forward half of a block.
#include "ops/mlp.h"

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/gemm.h"
#include "ops/linear.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

class MlpBackward : public Node {
 public:
  MlpBackward(Activation activation, Weight up, Weight up_bias, Weight down, Weight down_bias)
      : Node("Mlp"),
        activation_(activation),
        up_(std::move(up)),
        up_bias_(std::move(up_bias)),
        down_(std::move(down)),
        down_bias_(std::move(down_bias)) {}

  at::Tensor x, pre;
  at::Tensor active;  // undefined: to be computed again

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    if (!active.defined()) active = activation_forward(activation_, pre, up_bias_.value);
    accumulate_linear_gradient(dy, active, down_, down_bias_);
    active.reset();
    const at::Tensor d_active = times(dy, down_.value);
    const at::Tensor d_pre = activation_backward(activation_, pre, up_bias_.value, d_active);
    pre.reset();
    accumulate_linear_gradient(d_pre, x, up_, up_bias_);
    x.reset();
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {times(d_pre, up_.value)};
  }

 private:
  Activation activation_;
  Weight up_, up_bias_, down_, down_bias_;
};

}  // namespace

at::Tensor mlp(const at::Tensor& x, Activation activation, const Weight& up, const Weight& up_bias,
               const Weight& down, const Weight& down_bias, bool recompute) {
  SAUROPOD_CHECK(x.dim() == 2 && x.size(1) == up.value.size(1));
  SAUROPOD_CHECK(up.value.size(0) ==
                 down.value.size(1) * (activation == Activation::swiglu ? 2 : 1));
  at::Tensor pre = times_transposed(x, up.value);
  at::Tensor active;
  {
    const at::NoGradGuard no_grad;
    active = activation_forward(activation, pre, up_bias.value);
  }
  const at::Tensor y = times_transposed(active, down.value, down_bias.value);
  if (recording()) {
    auto node = c10::make_intrusive<MlpBackward>(activation, up, up_bias, down, down_bias);
    node->x = x.detach().contiguous();
    node->pre = std::move(pre);
    if (!recompute) node->active = std::move(active);
    attach(node, {x}, {y});
  }
  return y;
}

}  // namespace sauropod::ops

// The linear layer: ATen's products forward and for the input, our accumulation for the weights.
#include "ops/linear.h"

#include <ATen/ops/mm.h>

#include "base/error.h"
#include "ops/gemm.h"
#include "ops/linear_cpu.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

class LinearBackward : public Node {
 public:
  LinearBackward(at::Tensor x, Weight weight, Weight bias)
      : Node("Linear"), x_(std::move(x)), weight_(std::move(weight)), bias_(std::move(bias)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor dy = gradients[0].contiguous();
    accumulate_linear_gradient(dy, x_, weight_, bias_);
    x_.reset();
    if (!task_should_compute_output(0)) return {at::Tensor()};
    return {times(dy, weight_.value)};
  }

 private:
  at::Tensor x_;
  Weight weight_, bias_;
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const Weight& weight, const Weight& bias) {
  SAUROPOD_CHECK(x.dim() == 2 && weight.value.dim() == 2 && x.size(1) == weight.value.size(1));
  const at::Tensor y = times_transposed(x, weight.value, bias.value);
  if (recording())
    attach(c10::make_intrusive<LinearBackward>(x.detach().contiguous(), weight, bias), {x}, {y});
  return y;
}

void accumulate_linear_gradient(const at::Tensor& dy, const at::Tensor& x, const Weight& weight,
                                const Weight& bias) {
  if (!weight.wants_gradient()) return;
  if (accumulate_linear_gradient_cpu(dy, x, weight, bias)) return;
  if (weight.gradient.scalar_type() == dy.scalar_type()) {
    add_transposed_times(weight.gradient, dy, x);
  } else if (dy.is_cuda()) {
    weight.gradient.add_(at::mm(dy.t(), x, weight.gradient.scalar_type()));
  } else {
    // A product of bf16 matrices would be rounded to bf16 before it is added.
    const at::ScalarType wide = weight.gradient.scalar_type();
    weight.gradient.addmm_(dy.t().to(wide), x.to(wide));
  }
  if (bias.wants_gradient())
    bias.gradient.add_(dy.sum({0}, /*keepdim=*/false, bias.gradient.scalar_type()));
}

}  // namespace sauropod::ops

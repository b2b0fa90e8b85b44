// GELU and SwiGLU in ATen's operations, for the types and devices without kernels of our own.
#include "ops/activation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>

#include "ops/cpu.h"

namespace sauropod::ops {

at::Tensor activation_forward(Activation activation, const at::Tensor& pre, const at::Tensor& bias) {
  if (has_kernels(pre)) return activation_forward_cpu(activation, pre, bias);
  if (activation == Activation::gelu)
    return at::gelu(bias.defined() ? pre.add(bias) : pre, "tanh");
  const auto halves = pre.chunk(2, 1);
  return halves[0].mul(at::sigmoid(halves[0])).mul(halves[1]);
}

at::Tensor activation_backward(Activation activation, const at::Tensor& pre, const at::Tensor& bias,
                               const at::Tensor& dy) {
  if (has_kernels(pre)) return activation_backward_cpu(activation, pre, bias, dy);
  if (activation == Activation::gelu)
    return at::gelu_backward(dy, bias.defined() ? pre.add(bias) : pre, "tanh");
  const auto halves = pre.chunk(2, 1);
  const at::Tensor s = at::sigmoid(halves[0]);
  const at::Tensor silu = halves[0].mul(s);
  const at::Tensor derivative = s.add(silu.mul(s.neg().add(1)));
  return at::cat({dy.mul(halves[1]).mul(derivative), dy.mul(silu)}, 1);
}

}  // namespace sauropod::ops

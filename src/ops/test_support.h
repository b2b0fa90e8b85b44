// What the tests of the operations share: an operation as a case that runs in any type and on any device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "ops/weight.h"

namespace sauropod::ops {

// Normal numbers that are exact in bf16, in double: every type starts from the same values.
inline at::Tensor random_numbers(const std::vector<int64_t>& shape, std::string_view name,
                                 double deviation = 1) {
  const at::Tensor x = at::empty(shape, at::kDouble);
  const uint64_t key = base::random_key(7, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<double>()[i] = deviation * base::random_normal(key, static_cast<uint64_t>(i));
  return x.to(at::kBFloat16).to(at::kDouble);
}

// ‖a − b‖ / ‖b‖ in double; ‖a‖ where b is zero.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.detach().to(at::kDouble);
  const double size = wide.norm().item<double>();
  const double difference = a.detach().to(at::kDouble).sub(wide).norm().item<double>();
  return size > 0 ? difference / size : difference;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

using Tensors = std::vector<at::Tensor>;

struct Case {
  std::string name;
  Tensors inputs;   // double; may hold undefined ones
  Tensors weights;  // double; undefined ones become undefined weights
  std::function<Tensors(const Tensors& inputs, const std::vector<Weight>& weights)> run;
  // The output is a loss, whose incoming gradient must be 1.
  bool is_loss = false;
  // How often a value is rounded to bf16 on the longest way from an input to a result.
  int roundings = 2;
};

struct Results {
  Tensors outputs, input_gradients, weight_gradients;
};

inline at::ScalarType gradient_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Tensor cotangent(const Case& c, const at::Tensor& output, size_t index) {
  const at::Tensor d = c.is_loss ? at::zeros(output.sizes(), at::kDouble).fill_(1)
                                 : random_numbers(output.sizes().vec(),
                                                  "cotangent " + std::to_string(index));
  return d.to(output.device(), output.scalar_type());
}

inline std::vector<Weight> weights_of(const Case& c, at::ScalarType type, at::Device device) {
  std::vector<Weight> weights;
  for (const at::Tensor& value : c.weights) {
    Weight& weight = weights.emplace_back();
    if (!value.defined()) continue;
    weight.value = value.to(device, type).clone();
    weight.gradient =
        at::zeros(value.sizes(), weight.value.options().dtype(gradient_type(type)));
  }
  return weights;
}

inline Tensors inputs_of(const Case& c, at::ScalarType type, at::Device device) {
  Tensors inputs;
  for (const at::Tensor& input : c.inputs)
    inputs.push_back(input.defined() ? input.to(device, type).clone() : input);
  return inputs;
}

// Outputs and all gradients.
inline Results evaluate(const Case& c, at::ScalarType type, at::Device device = at::kCPU) {
  Tensors inputs = inputs_of(c, type, device);
  for (at::Tensor& input : inputs)
    if (input.defined()) input.requires_grad_(true);
  const std::vector<Weight> weights = weights_of(c, type, device);
  Results results;
  const Tensors outputs = c.run(inputs, weights);
  Tensors cotangents;
  for (size_t i = 0; i < outputs.size(); ++i) {
    results.outputs.push_back(outputs[i].detach().clone());
    cotangents.push_back(cotangent(c, outputs[i], i));
  }
  torch::autograd::backward(outputs, cotangents);
  for (const at::Tensor& input : inputs)
    results.input_gradients.push_back(input.defined() ? input.grad() : input);
  for (const Weight& weight : weights) results.weight_gradients.push_back(weight.gradient);
  return results;
}

// The cases of every operation (cases_test.cpp).
const std::vector<Case>& cases();

}  // namespace sauropod::ops

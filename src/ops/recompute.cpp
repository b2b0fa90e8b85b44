#include "ops/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/node.h"

namespace sauropod::ops {
namespace {

class RecomputeBackward : public Node {
 public:
  RecomputeBackward(TensorFunction function, std::vector<at::Tensor> inputs)
      : Node("Recompute"), function_(std::move(function)), inputs_(std::move(inputs)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    // Grad mode is off inside a backward pass.
    const at::AutoGradMode grad_mode(true);
    std::vector<at::Tensor> inputs, defined;
    for (const at::Tensor& kept : inputs_) {
      inputs.push_back(kept.defined() ? kept.detach().requires_grad_(true) : kept);
      if (kept.defined()) defined.push_back(inputs.back());
    }
    inputs_.clear();
    const std::vector<at::Tensor> outputs = function_(inputs);
    std::vector<at::Tensor> roots, root_gradients;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (gradients[i].defined()) {
        roots.push_back(outputs[i]);
        root_gradients.push_back(gradients[i]);
      }
    const auto found = torch::autograd::grad(roots, defined, root_gradients, /*retain_graph=*/{},
                                             /*create_graph=*/false, /*allow_unused=*/true);
    torch::autograd::variable_list result;
    size_t next = 0;
    for (const at::Tensor& input : inputs)
      result.push_back(input.defined() ? found[next++] : at::Tensor());
    return result;
  }

 private:
  TensorFunction function_;
  std::vector<at::Tensor> inputs_;
};

}  // namespace

std::vector<at::Tensor> recomputed(TensorFunction function,
                                   const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  {
    const at::NoGradGuard no_grad;
    outputs = function(inputs);
  }
  if (!recording()) return outputs;
  // An input that is handed on gets this node as its origin only as a tensor of its own.
  for (at::Tensor& output : outputs)
    for (const at::Tensor& input : inputs)
      if (output.is_same(input)) output = output.detach();
  std::vector<at::Tensor> kept;
  for (const at::Tensor& input : inputs) kept.push_back(input.defined() ? input.detach() : input);
  attach(c10::make_intrusive<RecomputeBackward>(std::move(function), std::move(kept)), inputs, outputs);
  return outputs;
}

}  // namespace sauropod::ops

#include "ops/node.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace sauropod::ops {

bool recording() { return at::GradMode::is_enabled(); }

void attach(const c10::intrusive_ptr<torch::autograd::Node>& node,
            const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& input : inputs)
    node->add_next_edge(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                        : torch::autograd::Edge());
  for (const at::Tensor& output : outputs) {
    const auto slot = node->add_input_metadata(output);
    torch::autograd::impl::set_gradient_edge(output, torch::autograd::Edge(node, slot));
  }
}

}  // namespace sauropod::ops

// What our differentiable operations share: building a node of the autograd graph by hand.
//
// A node holds what its backward pass needs as plain tensors. An output that is kept must be kept
// detached: holding the output itself would be a cycle that is never freed.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>
#include <utility>

namespace sauropod::ops {

class Node : public torch::autograd::Node {
 public:
  explicit Node(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }

 private:
  std::string name_;
};

// Whether a graph is being recorded at all.
bool recording();

// Makes `node` the origin of `outputs`, with an edge to each of `inputs` (undefined ones get none).
void attach(const c10::intrusive_ptr<torch::autograd::Node>& node,
            const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);

}  // namespace sauropod::ops

#include "ops/notify.h"

#include "ops/node.h"

namespace sauropod::ops {
namespace {

class NotifyBackward : public Node {
 public:
  explicit NotifyBackward(std::function<void()> done) : Node("Notify"), done_(std::move(done)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    done_();
    return std::move(gradients);
  }

 private:
  std::function<void()> done_;
};

}  // namespace

std::vector<at::Tensor> notify(const std::vector<at::Tensor>& tensors, std::function<void()> done) {
  if (!recording()) return tensors;
  std::vector<at::Tensor> defined, outputs;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) {
      defined.push_back(tensor);
      outputs.push_back(tensor.detach());
    }
  attach(c10::make_intrusive<NotifyBackward>(std::move(done)), defined, outputs);
  std::vector<at::Tensor> result;
  size_t next = 0;
  for (const at::Tensor& tensor : tensors)
    result.push_back(tensor.defined() ? outputs[next++] : at::Tensor());
  return result;
}

}  // namespace sauropod::ops

// The four collectives, which are two pairs: the forward pass of one is the backward pass of the other.
#include "ops/collective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <string>

#include "base/error.h"
#include "comm/communicator.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

using Step = at::Tensor (*)(const at::Tensor&, comm::Communicator&, const std::string&);

at::Tensor same(const at::Tensor& x, comm::Communicator&, const std::string&) { return x.detach(); }

// In x's own memory where x is the only one to hold it.
at::Tensor sum(const at::Tensor& x, comm::Communicator& group, const std::string& label) {
  const bool alone = x.use_count() == 1 && x.storage().use_count() == 1 && x.is_contiguous();
  at::Tensor total = alone ? x.detach() : x.detach().clone(at::MemoryFormat::Contiguous);
  group.all_reduce(label, total).wait();
  return total;
}

at::Tensor gather(const at::Tensor& x, comm::Communicator& group, const std::string& label) {
  const at::Tensor part = x.detach().contiguous();
  at::Tensor whole = at::empty({group.size() * part.size(0), part.size(1)}, part.options());
  group.all_gather(label, part, whole).wait();
  return whole;
}

at::Tensor scatter(const at::Tensor& x, comm::Communicator& group, const std::string& label) {
  const at::Tensor whole = x.detach().contiguous();
  at::Tensor part = at::empty({whole.size(0) / group.size(), whole.size(1)}, whole.options());
  group.reduce_scatter(label, whole, part).wait();
  return part;
}

class CollectiveBackward : public Node {
 public:
  CollectiveBackward(Step step, comm::Communicator& group, const char* label)
      : Node("Collective"), step_(step), group_(group), label_(std::string(label) + " gradient") {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    // Neither differs among the ranks, since their graphs don't: all go on, or none.
    if (!gradients[0].defined() || !task_should_compute_output(0)) return {at::Tensor()};
    return {step_(gradients[0], group_, label_)};
  }

 private:
  Step step_;
  comm::Communicator& group_;
  std::string label_;
};

at::Tensor collective(const at::Tensor& x, Step forward, Step backward, comm::Communicator& group,
                      const char* label) {
  const at::Tensor y = [&] {
    const at::NoGradGuard no_grad;
    return forward(x, group, label);
  }();
  if (recording()) attach(c10::make_intrusive<CollectiveBackward>(backward, group, label), {x}, {y});
  return y;
}

}  // namespace

at::Tensor copy_to_group(const at::Tensor& x, comm::Communicator& group, const char* label) {
  return group.size() == 1 ? x : collective(x, same, sum, group, label);
}

at::Tensor reduce_from_group(at::Tensor x, comm::Communicator& group, const char* label) {
  if (group.size() == 1) return x;
  return collective(x, sum, same, group, label);
}

at::Tensor gather_rows(const at::Tensor& x, comm::Communicator& group, const char* label) {
  SAUROPOD_CHECK(x.dim() == 2);
  return group.size() == 1 ? x : collective(x, gather, scatter, group, label);
}

at::Tensor reduce_scatter_rows(const at::Tensor& x, comm::Communicator& group, const char* label) {
  SAUROPOD_CHECK(x.dim() == 2 && x.size(0) % group.size() == 0, "{} rows over {} ranks", x.size(0),
                 group.size());
  return group.size() == 1 ? x : collective(x, scatter, gather, group, label);
}

}  // namespace sauropod::ops

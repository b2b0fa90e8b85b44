// Tensor and sequence parallelism at the boundaries of a block (Shoeybi et al., 2019; Korthikanti et al.,
// 2022): products split by rows are entered with a copy of all tokens and products split by columns are
// left with the sum over the group. With sequence parallelism the tokens are divided in between, so that
// entering gathers and leaving scatters.
#pragma once

#include "comm/communicator.h"
#include "model/block.h"

namespace sauropod::parallel {

class TensorBoundary : public model::Boundary {
 public:
  // The group must outlive the boundary.
  TensorBoundary(comm::Communicator& group, bool sequence, int64_t first_item, int64_t vocabulary)
      : group_(group), sequence_(sequence), first_item_(first_item), vocabulary_(vocabulary) {}

  at::Tensor enter(const at::Tensor& x) const override;
  at::Tensor leave(at::Tensor x) const override;
  bool adds_biases() const override { return group_.rank() == 0; }
  int64_t first_item() const override { return first_item_; }
  void divide(ops::CrossEntropyOptions& options) const override;

 private:
  comm::Communicator& group_;
  bool sequence_;
  int64_t first_item_, vocabulary_;
};

}  // namespace sauropod::parallel

#include "parallel/tensor_boundary.h"

#include "ops/collective.h"

namespace sauropod::parallel {

at::Tensor TensorBoundary::enter(const at::Tensor& x) const {
  return sequence_ ? ops::gather_rows(x, group_, "gather tokens")
                   : ops::copy_to_group(x, group_, "sum gradients of a block's input");
}

at::Tensor TensorBoundary::leave(at::Tensor x) const {
  return sequence_ ? ops::reduce_scatter_rows(x, group_, "sum and divide tokens")
                   : ops::reduce_from_group(std::move(x), group_, "sum a block's output");
}

void TensorBoundary::divide(ops::CrossEntropyOptions& options) const {
  options.first_item = first_item_;
  options.group = &group_;
  options.vocabulary = vocabulary_;
}

}  // namespace sauropod::parallel

// AdamW over the flat buffers of a model: moments, clipping by the global norm, weight decay where the
// parameter table says so.
#pragma once

#include "model/parameter_memory.h"

namespace sauropod::train {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // 0: not clipped
};

// Not thread-safe. `memory` has gradients and outlives the optimizer.
class Optimizer {
 public:
  Optimizer(model::ParameterMemory& memory, const AdamOptions& options);

  // The norm over all gradients, each parameter once.
  double gradient_norm() const;
  // One update at `rate`, with the gradients scaled down to the clipping norm, and the gradients set
  // to zero. Adam's t counts the updates made, not the steps skipped.
  void update(double rate, double gradient_norm);
  void zero_gradients();

  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  const at::Tensor& moment1() const { return moment1_; }
  const at::Tensor& moment2() const { return moment2_; }

 private:
  model::ParameterMemory& memory_;
  AdamOptions options_;
  at::Tensor moment1_, moment2_;
  int64_t updates_ = 0;
};

}  // namespace sauropod::train

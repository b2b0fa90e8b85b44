#include "train/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "base/error.h"
#include "ops/adamw.h"

namespace sauropod::train {

Optimizer::Optimizer(model::ParameterMemory& memory, const AdamOptions& options)
    : memory_(memory), options_(options) {
  SAUROPOD_CHECK(memory.gradients().defined());
  moment1_ = at::zeros_like(memory.gradients());
  moment2_ = at::zeros_like(memory.gradients());
}

double Optimizer::gradient_norm() const {
  return std::sqrt(ops::sum_of_squares(memory_.gradients()));
}

void Optimizer::update(double rate, double gradient_norm) {
  ++updates_;
  ops::AdamW step;
  step.rate = rate;
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.epsilon = options_.epsilon;
  step.correction1 = 1 - std::pow(options_.beta1, static_cast<double>(updates_));
  step.correction2 = 1 - std::pow(options_.beta2, static_cast<double>(updates_));
  if (options_.clip > 0 && gradient_norm > options_.clip)
    step.gradient_scale = options_.clip / gradient_norm;
  const ops::AdamWBuffers buffers{memory_.gradients(), memory_.weights(), memory_.low(), moment1_,
                                  moment2_};
  for (const auto& range : memory_.ranges()) {
    step.decay = range.decay ? options_.weight_decay : 0;
    ops::adamw(step, range.begin, range.end, buffers);
  }
}

void Optimizer::zero_gradients() {
  const at::NoGradGuard no_grad;
  memory_.gradients().zero_();
}

}  // namespace sauropod::train

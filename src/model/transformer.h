// The transformer of both families over the weights of a ParameterMemory. It knows no ranks.
#pragma once

#include "model/block.h"
#include "ops/cross_entropy.h"

namespace sauropod::model {

// A batch of sequences on the model's device.
struct Batch {
  at::Tensor tokens;   // [S, T] int32
  at::Tensor targets;  // [S, T] int32, −1 is left out; may be undefined where no loss is asked for
  // For data.mask_documents: the position at which each token's document begins in the sequence, [S, T]
  // int32. Attention then stays within documents, and positions count from their beginnings.
  at::Tensor first;
};

class Transformer {
 public:
  // `memory` is of the table of `options` (resolved) and outlives the model.
  Transformer(const ModelOptions& options, const ParameterMemory& memory,
              Recompute recompute = Recompute::none);

  // The final normalised states [S · T, hidden].
  at::Tensor states(const Batch& batch) const;
  // The loss of the batch; see ops::linear_cross_entropy. Backward through it adds to the gradients.
  ops::CrossEntropy loss(const Batch& batch, const ops::CrossEntropyOptions& options) const;
  // The same of states [n, hidden] and their targets [n] int32.
  ops::CrossEntropy loss(const at::Tensor& states, const at::Tensor& targets,
                         const ops::CrossEntropyOptions& options) const;
  // Logits of states [n, hidden] -> [n, vocabulary].
  at::Tensor logits(const at::Tensor& states) const;

  const ModelOptions& options() const { return options_; }
  at::Device device() const { return token_embedding_.value.device(); }

 private:
  ModelOptions options_;
  Recompute recompute_;
  ops::Weight token_embedding_, position_embedding_, final_norm_, final_norm_bias_, head_;
  std::vector<BlockWeights> blocks_;
  BlockShape shape_;
  RotaryAngles angles_;
};

}  // namespace sauropod::model

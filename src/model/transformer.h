// The transformer of both families, or some of its layers, over the weights of a ParameterMemory. It knows
// no ranks.
#pragma once

#include <functional>

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

// The layers that a Transformer computes: blocks [begin, end), the embeddings before them, and the final
// normalisation and the output layer after them.
struct Span {
  int64_t begin = 0;
  int64_t end = -1;  // −1: all
  bool embedding = true;
  bool head = true;
};

// What is called as passes go through the layers; each may be empty.
struct LayerHooks {
  // In a forward pass before the weights of a layer are read: −1 is the embeddings, the number of layers
  // what stands behind the last block.
  std::function<void(int64_t layer)> begins;
  // In a backward pass when everything that a block adds to its gradients is added.
  std::function<void(int64_t layer)> done;
};

class Transformer {
 public:
  // `memory` is of the table of `options` (resolved), or of those parts of it that the span and the
  // boundary call for. Both outlive the model.
  Transformer(const ModelOptions& options, const ParameterMemory& memory,
              Recompute recompute = Recompute::none, const Span& span = {},
              const Boundary* boundary = nullptr);

  // The final normalised states [S · T, hidden]: the three steps below, of a whole model.
  at::Tensor states(const Batch& batch) const;
  BlockState embed(const Batch& batch) const;
  BlockState blocks(const Batch& batch, BlockState state, const LayerHooks& hooks = {}) const;
  at::Tensor normalize(const BlockState& state) const;
  // The loss of the batch; see ops::linear_cross_entropy. Backward through it adds to the gradients.
  ops::CrossEntropy loss(const Batch& batch, const ops::CrossEntropyOptions& options) const;
  // The same of states [n, hidden] and their targets [n] int32.
  ops::CrossEntropy loss(const at::Tensor& states, const at::Tensor& targets,
                         const ops::CrossEntropyOptions& options) const;
  // Logits of states [n, hidden] -> [n, vocabulary].
  at::Tensor logits(const at::Tensor& states) const;

  const ModelOptions& options() const { return options_; }
  const Span& span() const { return span_; }
  at::Device device() const { return device_; }

 private:
  ModelOptions options_;
  Recompute recompute_;
  Span span_;
  const Boundary* boundary_;
  ops::Weight token_embedding_, position_embedding_, final_norm_, final_norm_bias_, head_;
  std::vector<BlockWeights> blocks_;
  BlockShape shape_;
  RotaryAngles angles_;
  at::Device device_;
};

}  // namespace sauropod::model

#include "model/transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>

#include "base/error.h"
#include "ops/embedding.h"

namespace sauropod::model {

Transformer::Transformer(const ModelOptions& options, const ParameterMemory& memory,
                         Recompute recompute)
    : options_(options), recompute_(recompute) {
  token_embedding_ = memory.weight("embedding.token.weight");
  position_embedding_ = memory.weight("embedding.position.weight");
  final_norm_ = memory.weight("final_norm.weight");
  final_norm_bias_ = memory.weight("final_norm.bias");
  head_ = options.tied_embeddings ? token_embedding_ : memory.weight("head.weight");
  for (int64_t layer = 0; layer < options.layers; ++layer)
    blocks_.push_back(block_weights(memory, layer));
  shape_ = block_shape(options);
  angles_ = rotary_angles(options, memory);
}

at::Tensor Transformer::states(const Batch& batch) const {
  const int64_t sequences = batch.tokens.size(0), length = batch.tokens.size(1);
  SAUROPOD_CHECK(length <= options_.context, "{} tokens, context {}", length, options_.context);
  BlockShape shape = shape_;
  shape.attention.sequences = sequences;
  shape.attention.length = length;
  const ops::AttentionContext context{batch.first, angles_.cosine, angles_.sine};
  at::Tensor positions;
  if (batch.first.defined())
    positions = at::arange(length, batch.first.options()).unsqueeze(0).sub(batch.first);

  BlockState state;
  state.residual =
      ops::embedding(batch.tokens, positions, token_embedding_, position_embedding_);
  for (const BlockWeights& block : blocks_)
    state = block_forward(block, shape, context, state, recompute_);
  return ops::add_norm(state.residual, state.delta, final_norm_, final_norm_bias_, shape.norm,
                       shape.epsilon)
      .y;
}

ops::CrossEntropy Transformer::loss(const Batch& batch,
                                    const ops::CrossEntropyOptions& options) const {
  return loss(states(batch), batch.targets.reshape({-1}), options);
}

ops::CrossEntropy Transformer::loss(const at::Tensor& states, const at::Tensor& targets,
                                    const ops::CrossEntropyOptions& options) const {
  return ops::linear_cross_entropy(states, head_, targets, options);
}

at::Tensor Transformer::logits(const at::Tensor& states) const {
  return at::linear(states, head_.value);
}

}  // namespace sauropod::model

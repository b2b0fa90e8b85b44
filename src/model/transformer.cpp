#include "model/transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/notify.h"

namespace sauropod::model {

Transformer::Transformer(const ModelOptions& options, const ParameterMemory& memory,
                         Recompute recompute, const Span& span, const Boundary* boundary)
    : options_(options),
      recompute_(recompute),
      span_(span),
      boundary_(boundary),
      device_(memory.device()) {
  if (span_.end < 0) span_.end = options.layers;
  const bool adds_biases = boundary == nullptr || boundary->adds_biases();
  token_embedding_ = memory.weight("embedding.token.weight");
  if (adds_biases) position_embedding_ = memory.weight("embedding.position.weight");
  final_norm_ = memory.weight("final_norm.weight");
  final_norm_bias_ = memory.weight("final_norm.bias");
  head_ = options.tied_embeddings ? token_embedding_ : memory.weight("head.weight");
  for (int64_t layer = span_.begin; layer < span_.end; ++layer) {
    BlockWeights weights = block_weights(memory, layer);
    if (!adds_biases) weights.output_bias = weights.down_bias = {};
    blocks_.push_back(std::move(weights));
  }
  shape_ = block_shape(options);
  if (!blocks_.empty()) {  // the heads that this part holds
    const auto heads = [&](const char* name) {
      return memory.weight(fmt::format("layers.{}.attention.{}.weight", span_.begin, name))
                 .value.size(0) /
             options.head_size;
    };
    shape_.attention.heads = heads("query");
    shape_.attention.kv_heads = heads("key");
  }
  angles_ = rotary_angles(options, memory);
}

BlockState Transformer::embed(const Batch& batch) const {
  SAUROPOD_CHECK(batch.tokens.size(1) <= options_.context, "{} tokens, context {}",
                 batch.tokens.size(1), options_.context);
  at::Tensor positions;
  if (batch.first.defined())
    positions =
        at::arange(batch.tokens.size(1), batch.first.options()).unsqueeze(0).sub(batch.first);
  at::Tensor x =
      ops::embedding(batch.tokens, positions, token_embedding_, position_embedding_,
                     boundary_ == nullptr ? 0 : boundary_->first_item(), options_.vocabulary);
  return {boundary_ == nullptr ? std::move(x) : boundary_->leave(std::move(x)), {}};
}

BlockState Transformer::blocks(const Batch& batch, BlockState state,
                               const LayerHooks& hooks) const {
  const int64_t sequences = batch.tokens.size(0), length = batch.tokens.size(1);
  BlockShape shape = shape_;
  shape.attention.sequences = sequences;
  shape.attention.length = length;
  const ops::AttentionContext context{batch.first, angles_.cosine, angles_.sine};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int64_t layer = span_.begin + static_cast<int64_t>(i);
    if (hooks.begins) hooks.begins(layer);
    if (hooks.done) {
      const auto marked =
          ops::notify({state.residual, state.delta}, [done = hooks.done, layer] { done(layer); });
      state = {marked[0], marked[1]};
    }
    state = block_forward(blocks_[i], shape, context, state, recompute_, boundary_);
  }
  return state;
}

at::Tensor Transformer::normalize(const BlockState& state) const {
  return ops::add_norm(state.residual, state.delta, final_norm_, final_norm_bias_, shape_.norm,
                       shape_.epsilon)
      .y;
}

at::Tensor Transformer::states(const Batch& batch) const {
  return normalize(blocks(batch, embed(batch)));
}

ops::CrossEntropy Transformer::loss(const Batch& batch,
                                    const ops::CrossEntropyOptions& options) const {
  return loss(states(batch), batch.targets.reshape({-1}), options);
}

ops::CrossEntropy Transformer::loss(const at::Tensor& states, const at::Tensor& targets,
                                    const ops::CrossEntropyOptions& options) const {
  if (boundary_ == nullptr) return ops::linear_cross_entropy(states, head_, targets, options);
  ops::CrossEntropyOptions divided = options;
  boundary_->divide(divided);
  return ops::linear_cross_entropy(boundary_->enter(states), head_, targets, divided);
}

at::Tensor Transformer::logits(const at::Tensor& states) const {
  return at::linear(states, head_.value);
}

}  // namespace sauropod::model

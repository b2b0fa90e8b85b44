#include "model/transformer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>

#include <cmath>

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

  const bool llama = options.family == "llama";
  shape_.norm = llama ? ops::NormKind::rms : ops::NormKind::layer;
  shape_.activation = llama ? ops::Activation::swiglu : ops::Activation::gelu;
  shape_.epsilon = options.norm_epsilon;
  shape_.attention.heads = options.heads;
  shape_.attention.kv_heads = options.kv_heads;
  shape_.attention.head_size = options.head_size;
  if (llama) {
    const auto on = at::TensorOptions().dtype(at::kDouble).device(memory.device());
    const at::Tensor exponents = at::arange(0, options.head_size, 2, on).div(options.head_size);
    const at::Tensor rates = exponents.mul(-std::log(options.rope_theta)).exp();
    const at::Tensor angles = at::arange(options.context, on).unsqueeze(1).mul(rates);
    const auto type = memory.precision() == Precision::fp64 ? at::kDouble : at::kFloat;
    cosine_ = angles.cos().to(type).contiguous();
    sine_ = angles.sin().to(type).contiguous();
  }
}

at::Tensor Transformer::states(const Batch& batch) const {
  const int64_t sequences = batch.tokens.size(0), length = batch.tokens.size(1);
  SAUROPOD_CHECK(length <= options_.context, "{} tokens, context {}", length, options_.context);
  BlockShape shape = shape_;
  shape.attention.sequences = sequences;
  shape.attention.length = length;
  const ops::AttentionContext context{batch.first, cosine_, sine_};
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
  return ops::linear_cross_entropy(states(batch), head_, batch.targets.reshape({-1}), options);
}

at::Tensor Transformer::logits(const at::Tensor& states) const {
  return at::linear(states, head_.value);
}

}  // namespace sauropod::model

#include "infer/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "infer/attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"

namespace sauropod::infer {

Decoder::Decoder(const model::ModelOptions& options, const model::ParameterMemory& memory)
    : options_(options),
      memory_(memory),
      shape_(model::block_shape(options)),
      angles_(model::rotary_angles(options, memory)) {
  token_embedding_ = memory.weight("embedding.token.weight");
  position_embedding_ = memory.weight("embedding.position.weight");
  final_norm_ = memory.weight("final_norm.weight");
  final_norm_bias_ = memory.weight("final_norm.bias");
  head_ = options.tied_embeddings ? token_embedding_ : memory.weight("head.weight");
  for (int64_t layer = 0; layer < options.layers; ++layer)
    blocks_.push_back(model::block_weights(memory, layer));
}

KeyValueCache Decoder::make_cache(int64_t slots, int64_t capacity) const {
  return {options_, memory_, slots, capacity};
}

at::Tensor Decoder::attend(KeyValueCache& cache, std::span<const Piece> pieces, int64_t layer,
                           const at::Tensor& qkv) const {
  const ops::AttentionShape& shape = shape_.attention;
  std::vector<at::Tensor> mixed;
  int64_t begin = 0;
  for (const Piece& piece : pieces) {
    const auto tokens = static_cast<int64_t>(piece.tokens.size());
    const at::Tensor rows = qkv.narrow(0, begin, tokens);
    const at::Tensor heads =
        rows.view({tokens, shape.heads + 2 * shape.kv_heads, shape.head_size});
    cache.write(layer, piece.slot, heads.narrow(1, shape.heads, shape.kv_heads),
                heads.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads));
    const int64_t all = cache.length(piece.slot) + tokens;
    mixed.push_back(cached_attention(rows, cache.keys(layer, piece.slot, all),
                                     cache.values(layer, piece.slot, all), shape));
    begin += tokens;
  }
  return mixed.size() == 1 ? mixed.front() : at::cat(mixed, 0);
}

at::Tensor Decoder::states(KeyValueCache& cache, std::span<const Piece> pieces) const {
  const at::NoGradGuard no_grad;
  std::vector<int32_t> ids, places;
  std::vector<bool> used(static_cast<size_t>(cache.slots()), false);
  for (const Piece& piece : pieces) {
    SAUROPOD_CHECK(!piece.tokens.empty() && !used[static_cast<size_t>(piece.slot)]);
    used[static_cast<size_t>(piece.slot)] = true;
    for (size_t i = 0; i < piece.tokens.size(); ++i) {
      ids.push_back(piece.tokens[i]);
      places.push_back(static_cast<int32_t>(cache.length(piece.slot) + static_cast<int64_t>(i)));
    }
  }
  const at::Tensor tokens = at::tensor(ids, at::kInt).unsqueeze(0).to(memory_.device());
  const at::Tensor positions = at::tensor(places, at::kInt).to(memory_.device());

  at::Tensor residual =
      ops::embedding(tokens, positions.unsqueeze(0), token_embedding_, position_embedding_);
  at::Tensor delta;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    const model::BlockWeights& w = blocks_[static_cast<size_t>(layer)];
    const auto first = ops::add_norm(residual, delta, w.attention_norm, w.attention_norm_bias,
                                     shape_.norm, shape_.epsilon);
    const at::Tensor qkv = ops::linear(first.y, w.qkv, w.qkv_bias);
    if (angles_.cosine.defined())
      ops::rotate(qkv, shape_.attention, positions, angles_.cosine, angles_.sine);
    const at::Tensor mixed = attend(cache, pieces, layer, qkv);
    const auto second = ops::add_norm(first.sum, ops::linear(mixed, w.output, w.output_bias),
                                      w.mlp_norm, w.mlp_norm_bias, shape_.norm, shape_.epsilon);
    residual = second.sum;
    delta = ops::mlp(second.y, shape_.activation, w.up, w.up_bias, w.down, w.down_bias,
                     /*recompute=*/false);
  }
  for (const Piece& piece : pieces)
    cache.advance(piece.slot, static_cast<int64_t>(piece.tokens.size()));
  return ops::add_norm(residual, delta, final_norm_, final_norm_bias_, shape_.norm, shape_.epsilon)
      .y;
}

at::Tensor Decoder::next_logits(KeyValueCache& cache, std::span<const Piece> pieces) const {
  const at::NoGradGuard no_grad;
  const at::Tensor all = states(cache, pieces);
  std::vector<int32_t> last;
  int32_t end = 0;
  for (const Piece& piece : pieces) last.push_back((end += static_cast<int32_t>(piece.tokens.size())) - 1);
  const at::Tensor rows = at::index_select(all, 0, at::tensor(last, at::kInt).to(all.device()));
  const auto type = memory_.precision() == model::Precision::fp64 ? at::kDouble : at::kFloat;
  return logits(rows).to(type).cpu();
}

at::Tensor Decoder::logits(const at::Tensor& states) const {
  const at::NoGradGuard no_grad;
  return at::linear(states, head_.value);
}

}  // namespace sauropod::infer

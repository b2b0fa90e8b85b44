#include "model/block.h"

#include <ATen/ops/arange.h>

#include <cmath>

#include "base/error.h"
#include "ops/linear.h"
#include "ops/recompute.h"

namespace sauropod::model {
namespace {

BlockState forward_once(const BlockWeights& w, const BlockShape& shape,
                        const ops::AttentionContext& context, const BlockState& state,
                        bool recompute_activation, const Boundary* boundary) {
  const auto enter = [&](const at::Tensor& x) { return boundary ? boundary->enter(x) : x; };
  const auto leave = [&](at::Tensor x) { return boundary ? boundary->leave(std::move(x)) : x; };
  const auto first = ops::add_norm(state.residual, state.delta, w.attention_norm,
                                   w.attention_norm_bias, shape.norm, shape.epsilon);
  const at::Tensor qkv = ops::linear(enter(first.y), w.qkv, w.qkv_bias);
  const at::Tensor mixed = ops::attention(qkv, shape.attention, context);
  const at::Tensor attended = leave(ops::linear(mixed, w.output, w.output_bias));

  const auto second = ops::add_norm(first.sum, attended, w.mlp_norm, w.mlp_norm_bias, shape.norm,
                                    shape.epsilon);
  return {second.sum, leave(ops::mlp(enter(second.y), shape.activation, w.up, w.up_bias, w.down,
                                     w.down_bias, recompute_activation))};
}

}  // namespace

Recompute parse_recompute(std::string_view name) {
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "full") return Recompute::full;
  base::fail_usage("recompute '{}' is not known; choose none, selective or full", name);
}

BlockWeights block_weights(const ParameterMemory& memory, int64_t layer) {
  const auto find = [&](const char* name) {
    return memory.weight(fmt::format("layers.{}.{}", layer, name));
  };
  BlockWeights w;
  w.attention_norm = find("attention.norm.weight");
  w.attention_norm_bias = find("attention.norm.bias");
  w.qkv = find("attention.qkv.weight");
  w.qkv_bias = find("attention.qkv.bias");
  w.output = find("attention.output.weight");
  w.output_bias = find("attention.output.bias");
  w.mlp_norm = find("mlp.norm.weight");
  w.mlp_norm_bias = find("mlp.norm.bias");
  w.up = find("mlp.gate_up.weight");
  if (!w.up.defined()) w.up = find("mlp.up.weight");
  w.up_bias = find("mlp.up.bias");
  w.down = find("mlp.down.weight");
  w.down_bias = find("mlp.down.bias");
  return w;
}

BlockShape block_shape(const ModelOptions& options) {
  const bool llama = options.family == "llama";
  BlockShape shape;
  shape.norm = llama ? ops::NormKind::rms : ops::NormKind::layer;
  shape.activation = llama ? ops::Activation::swiglu : ops::Activation::gelu;
  shape.epsilon = options.norm_epsilon;
  shape.attention.heads = options.heads;
  shape.attention.kv_heads = options.kv_heads;
  shape.attention.head_size = options.head_size;
  return shape;
}

RotaryAngles rotary_angles(const ModelOptions& options, const ParameterMemory& memory) {
  if (options.family != "llama") return {};
  const auto on = at::TensorOptions().dtype(at::kDouble).device(memory.device());
  const at::Tensor exponents = at::arange(0, options.head_size, 2, on).div(options.head_size);
  const at::Tensor rates = exponents.mul(-std::log(options.rope_theta)).exp();
  const at::Tensor angles = at::arange(options.context, on).unsqueeze(1).mul(rates);
  const auto type = memory.precision() == Precision::fp64 ? at::kDouble : at::kFloat;
  return {angles.cos().to(type).contiguous(), angles.sin().to(type).contiguous()};
}

BlockState block_forward(const BlockWeights& weights, const BlockShape& shape,
                         const ops::AttentionContext& context, const BlockState& state,
                         Recompute recompute, const Boundary* boundary) {
  if (recompute != Recompute::full)
    return forward_once(weights, shape, context, state, recompute == Recompute::selective,
                        boundary);
  const auto outputs = ops::recomputed(
      [weights, shape, context, boundary](const std::vector<at::Tensor>& inputs) {
        const BlockState next =
            forward_once(weights, shape, context, {inputs[0], inputs[1]}, false, boundary);
        return std::vector<at::Tensor>{next.residual, next.delta};
      },
      {state.residual, state.delta});
  return {outputs[0], outputs[1]};
}

}  // namespace sauropod::model

// One transformer block of either family. It works on the weights it is given and knows nothing of the
// model around it.
#pragma once

#include "model/parameter_memory.h"
#include "ops/attention.h"
#include "ops/mlp.h"
#include "ops/norm.h"

namespace sauropod::model {

// Recomputation in the backward pass (Chen et al., 2016; Korthikanti et al., 2022): `selective` does not
// keep the output of the activation function, the widest of the activations and the cheapest to compute
// again; `full` keeps only a block's inputs. The numbers are the same in every mode.
enum class Recompute { none, selective, full };

Recompute parse_recompute(std::string_view name);

struct BlockWeights {
  ops::Weight attention_norm, attention_norm_bias;  // [h]
  ops::Weight qkv, qkv_bias;                        // [(heads + 2 kv_heads) · D, h]
  ops::Weight output, output_bias;                  // [h, heads · D]
  ops::Weight mlp_norm, mlp_norm_bias;              // [h]
  ops::Weight up, up_bias;                          // [mlp, h]; llama: gate and up, [2·mlp, h]
  ops::Weight down, down_bias;                      // [h, mlp]
};

// The parts of one block in a model's memory; biases are undefined in llama.
BlockWeights block_weights(const ParameterMemory& memory, int64_t layer);

struct BlockShape {
  ops::NormKind norm = ops::NormKind::layer;
  ops::Activation activation = ops::Activation::gelu;
  double epsilon = 0;
  ops::AttentionShape attention;
};

// The shape of a resolved model's blocks, but for the sequences and their length.
BlockShape block_shape(const ModelOptions& options);

// The rotary angles of every position of the context, [context, D/2], in float (double for fp64); both
// undefined in jurassic.
struct RotaryAngles {
  at::Tensor cosine, sine;
};
RotaryAngles rotary_angles(const ModelOptions& options, const ParameterMemory& memory);

// What flows between blocks: the residual stream and the last sublayer's output, not yet added to it.
// The addition is part of the next normalisation. delta is undefined before the first block.
struct BlockState {
  at::Tensor residual;  // [tokens, h]
  at::Tensor delta;     // [tokens, h]
};

BlockState block_forward(const BlockWeights& weights, const BlockShape& shape,
                         const ops::AttentionContext& context, const BlockState& state,
                         Recompute recompute);

}  // namespace sauropod::model

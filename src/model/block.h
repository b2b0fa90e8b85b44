// One transformer block of either family. It works on the weights it is given and knows nothing of the
// model around it.
#pragma once

#include "model/parameter_memory.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
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

// What surrounds the products of a model whose matrices are held in parts (parallel/): where a value that
// all parts need enters them, and where what each part made becomes the sum of all.
class Boundary {
 public:
  virtual ~Boundary() = default;
  // The normalised input of attention, MLP or output layer.
  virtual at::Tensor enter(const at::Tensor& x) const = 0;
  // A part of the output of embedding, attention or MLP, whose memory it may take.
  virtual at::Tensor leave(at::Tensor x) const = 0;
  // Whether this part adds what must be added once: the biases of attention's and the MLP's outputs, and
  // the positions' embedding.
  virtual bool adds_biases() const = 0;
  // Where the vocabulary is held in parts.
  virtual int64_t first_item() const = 0;
  virtual void divide(ops::CrossEntropyOptions& options) const = 0;
};

// `boundary` may be null: the matrices are whole.
BlockState block_forward(const BlockWeights& weights, const BlockShape& shape,
                         const ops::AttentionContext& context, const BlockState& state,
                         Recompute recompute, const Boundary* boundary = nullptr);

}  // namespace sauropod::model

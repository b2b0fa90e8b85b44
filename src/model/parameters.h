// The parameter table: every parameter of a model, listed once.
//
// Initialisation, tensor-parallel slices, pipeline stages, the optimizer's groups and shards,
// checkpoint boxes, the memory planner and the exporters all read this table; adding a model family
// means adding a table and a block. The order of the table is the order in memory, of checkpoints
// and of every loop over parameters.
//
// Families: `jurassic` is the GPT-2 style pre-LN decoder of Jurassic-1 (Lieber et al., 2021): learned
// positions, LayerNorm, tanh GELU, biases, tied embeddings. `llama` (Touvron et al., 2023) has RMSNorm,
// rotary positions, SwiGLU, grouped keys and values, no biases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sauropod::config {
class Section;
}

namespace sauropod::model {

// The shape of a model: the recipe's [model] section.
struct ModelOptions {
  std::string family = "jurassic";
  int64_t layers = 12;
  int64_t hidden = 768;        // h
  int64_t heads = 12;          // query heads
  int64_t kv_heads = 0;        // key/value heads; 0: as many as heads (llama only)
  int64_t head_size = 0;       // 0: hidden / heads
  int64_t mlp_hidden = 0;      // 0: 4h (jurassic), 8h/3 rounded up to a multiple of 64 (llama)
  int64_t context = 1024;      // longest sequence, in tokens
  int64_t vocabulary = 0;      // items; 0: the tokenizer's size
  bool tied_embeddings = true; // the output layer is the token embedding
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0; // llama only

  void declare(config::Section& section);
  // Fills in the zeros above and throws base::Error (usage) on shapes that can't be meant. `vocabulary`
  // is the tokenizer's size, or 0 when there is no tokenizer.
  void resolve(int64_t tokenizer_vocabulary);

  bool operator==(const ModelOptions&) const = default;
};

// How a parameter is cut by tensor parallelism: along its output dimension, its input dimension, the
// vocabulary, or not at all (every rank holds the whole).
enum class Split { none, rows, columns, vocabulary };
enum class Initial { zeros, ones, normal };

struct Parameter {
  std::string name = {};        // "layers.3.attention.query.weight"
  std::vector<int64_t> shape = {};   // full shape; linear weights are [outputs, inputs]
  Split split = Split::none;
  int64_t layer = -1;           // block index; -1 the embeddings, `layers` the final norm and head
  bool decay = false;           // takes weight decay
  Initial initial = Initial::zeros;
  double deviation = 0;         // σ of Initial::normal
  // Parameters with the same non-empty group lie back to back in memory, in table order, so that one
  // GEMM reads them ("layers.3.attention.qkv.weight": query, key, value).
  std::string group = {};

  // Enters the computation after the sum over parts, and so must be added by one part only
  // (Boundary::adds_biases).
  bool once = false;
  // Where this is a part of a parameter: the whole's shape, and where the part begins in each dimension.
  // Both empty: it is the whole.
  std::vector<int64_t> whole = {};
  std::vector<int64_t> offset = {};

  int64_t size() const;
  const std::vector<int64_t>& whole_shape() const { return whole.empty() ? shape : whole; }
  std::vector<int64_t> begin() const;  // offset, or zeros
};

// Elements [begin, begin + size) of one dimension of a parameter.
Parameter part_of(Parameter parameter, size_t dimension, int64_t begin, int64_t size);

// σ = min(0.02, √(2/(5h))); outputs into the residual stream are divided by √(2·layers).
double initial_deviation(const ModelOptions& options);

// The table of a resolved model. Names:
//   embedding.token.weight [V, h], embedding.position.weight [context, h] (jurassic)
//   layers.N.attention.norm.{weight,bias} [h]
//   layers.N.attention.{query,key,value}.{weight,bias}, layers.N.attention.output.{weight,bias}
//   layers.N.mlp.norm.{weight,bias}, layers.N.mlp.{gate,up,down}.{weight,bias} (gate: llama)
//   final_norm.{weight,bias}, head.weight [V, h] (untied only)
// llama has no biases.
std::vector<Parameter> parameter_table(const ModelOptions& options);

int64_t parameter_count(const std::vector<Parameter>& table);

}  // namespace sauropod::model

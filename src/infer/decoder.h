// The forward pass of inference: reads new tokens of one or several sequences whose earlier tokens are
// in a key/value cache. The parameters, the blocks and their operations are those of model/.
#pragma once

#include <span>
#include <vector>

#include "infer/cache.h"
#include "model/block.h"

namespace sauropod::infer {

// New tokens of the sequence in one slot; they may be its prompt, a part of that, or its newest token.
struct Piece {
  int64_t slot = 0;
  std::span<const int32_t> tokens;
};

// Thread-safe, as long as each thread has a cache of its own.
class Decoder {
 public:
  // `memory` is of the table of `options` (resolved) and outlives the decoder.
  Decoder(const model::ModelOptions& options, const model::ParameterMemory& memory);

  KeyValueCache make_cache(int64_t slots, int64_t capacity) const;

  // Reads the pieces, which are of different slots and not empty, and puts them in the cache: the final
  // states of all their tokens, [tokens, hidden]. Dense operations take the tokens of all pieces at once.
  at::Tensor states(KeyValueCache& cache, std::span<const Piece> pieces) const;
  // The same, and the logits after the last token of each piece: [pieces, vocabulary] on the CPU, float
  // (double for fp64).
  at::Tensor next_logits(KeyValueCache& cache, std::span<const Piece> pieces) const;
  // Logits of states [n, hidden] -> [n, vocabulary].
  at::Tensor logits(const at::Tensor& states) const;

  const model::ModelOptions& options() const { return options_; }

 private:
  at::Tensor attend(KeyValueCache& cache, std::span<const Piece> pieces, int64_t layer,
                    const at::Tensor& qkv) const;

  model::ModelOptions options_;
  const model::ParameterMemory& memory_;
  ops::Weight token_embedding_, position_embedding_, final_norm_, final_norm_bias_, head_;
  std::vector<model::BlockWeights> blocks_;
  model::BlockShape shape_;
  model::RotaryAngles angles_;
};

}  // namespace sauropod::infer

// The output layer and the loss in one operation, over chunks of tokens: the logits of all tokens never
// exist at once (a vocabulary of 262,144 items makes 8 GiB of them for 8,192 tokens in float). The idea
// is that of Liger Kernel and of Cut Cross-Entropy (Wijmans et al., 2024). The ranks of a group may share
// the vocabulary (Shoeybi et al., 2019).
#pragma once

#include "ops/weight.h"

namespace sauropod::comm {
class Communicator;
}

namespace sauropod::ops {

struct CrossEntropyOptions {
  // The factor of every token's loss: 1 / (the number of tokens of the whole batch, over all ranks and
  // microbatches).
  double scale = 1;
  // Adds z_loss · (ln Σ exp logits)² to each token's loss (PaLM, Chowdhery et al., 2022).
  double z_loss = 0;
  // Whether gradients are wanted. The caller says so, since under no-grad inside `forward` a tensor
  // can't tell.
  bool gradients = true;
  // Tokens whose logits exist at once; 0 chooses by the size of the vocabulary. The same on all ranks.
  int64_t chunk = 0;

  // The rows of `weight` are items [first_item, first_item + rows), maybe none; the other items are on the
  // other ranks of the group, which outlives the call. Null: the weight has the whole vocabulary.
  int64_t first_item = 0;
  comm::Communicator* group = nullptr;
  // Items of the whole vocabulary, which targets are checked against; 0: the weight's rows.
  int64_t vocabulary = 0;
};

struct CrossEntropy {
  at::Tensor loss;     // scalar, float (double for double): scale · Σ (nats + z-loss); differentiable
  at::Tensor nats;     // [tokens], float: −ln p(target), not scaled
};

// x [tokens, hidden], weight [vocabulary, hidden], targets [tokens] int32; a target of −1 is left out, and
// one outside the vocabulary is a base::Error (on the CPU; before anything is computed).
// With gradients, weight.gradient is added to at once, and the gradient of x is computed at once and
// handed out in the backward pass, whose incoming gradient must therefore be 1.
//
// With a group: all its ranks give the same x, targets and options, and get the same bits of loss and nats.
// The gradient of x is this rank's part of a sum over the group, which whatever brought x to the ranks must
// form (copy_to_group or gather_rows in collective.h). One all-gather of two numbers a token per chunk.
CrossEntropy linear_cross_entropy(const at::Tensor& x, const Weight& weight,
                                  const at::Tensor& targets, const CrossEntropyOptions& options);

// The chunk that options.chunk = 0 stands for: logits of at most 448 MiB in float (under a quarter of
// those of 2,048 tokens at 262,144 items) and 128 MiB in bf16, 64 to 1,024 tokens. Larger chunks leave the
// cache, smaller ones read the weights and their gradients more often. Of a vocabulary in parts, the mean
// part (rounded up) counts, so that all ranks have the same chunks.
int64_t default_chunk(int64_t tokens, int64_t vocabulary, int64_t element_bytes);

}  // namespace sauropod::ops

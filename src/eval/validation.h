// The score of a model on packed held-out data: what training uses for validation.
#pragma once

#include <functional>

#include "data/validation_data.h"
#include "eval/score.h"
#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::eval {

// The text bytes of each item, as ValidationData wants them.
std::vector<int32_t> item_bytes(const tokenizer::Tokenizer& tokenizer);

// For model::Batch::first: the position at which each token's document begins, [S, T] int32 like
// `tokens` and on the CPU like them. An end-of-document item belongs to the document it ends.
at::Tensor document_beginnings(const at::Tensor& tokens, int32_t end_of_document);

// −ln p of every target of a batch [tokens], 0 where the target is −1.
using NatsOf = std::function<at::Tensor(const model::Batch&)>;

// The score over `windows` windows spread evenly over the data (0: all of them), `batch_sequences` at
// a time. The data's context may be at most the model's. Computes no gradients and leaves the model's
// alone. Sums are formed in double in the order of the windows.
Score evaluate(const NatsOf& nats_of, at::Device device, const data::ValidationData& data,
               int64_t windows, int64_t batch_sequences, int32_t end_of_document,
               bool mask_documents);
Score evaluate(const model::Transformer& model, const data::ValidationData& data, int64_t windows,
               int64_t batch_sequences, int32_t end_of_document, bool mask_documents);

}  // namespace sauropod::eval

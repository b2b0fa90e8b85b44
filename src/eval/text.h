// The score of a model on documents as they are, byte for byte.
//
// Each document is read on its own, from an end-of-document item to the one that ends it, in windows of
// the model's context. Windows after a document's first overlap the one before by half and only their
// second half counts, so that every token but a document's first ones is predicted from at least half a
// context. Every byte counts exactly once.
#pragma once

#include <string_view>
#include <vector>

#include "eval/score.h"
#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::eval {

// Collects windows and reads those of about the same length together, in an order that depends only on
// the documents. Computes no gradients. Not thread-safe; model and tokenizer must outlive it.
class TextScorer {
 public:
  TextScorer(const model::Transformer& model, const tokenizer::Tokenizer& tokenizer,
             int64_t batch_sequences = 8);

  // Empty documents are passed over: there is nothing in them to predict.
  void add(std::string_view document);
  // Reads what is still collected; the score of all documents so far.
  Score finish();
  int64_t documents() const { return documents_; }

 private:
  struct Window {
    std::vector<int32_t> tokens, targets;
    size_t counted_from = 0;
  };
  void read_pool();
  double nats_of(const Window* windows, int64_t count) const;

  const model::Transformer& model_;
  const tokenizer::Tokenizer& tokenizer_;
  const int64_t batch_sequences_;
  std::vector<Window> pool_;
  int64_t documents_ = 0;
  Score score_;
};

}  // namespace sauropod::eval

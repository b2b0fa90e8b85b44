// Training a vocabulary: docs/tokenizer.md ("Training") describes the method and why.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tokenizer/corpus.h"

namespace sauropod::tokenizer {

struct TrainingOptions {
  int64_t vocabulary_size = 32768;  // items in all: the special one, 256 bytes and the learned ones
  int max_words = 4;                // of an item; 1: words only
  int64_t min_count = 10;           // occurrences that make a phrase a candidate; a piece needs a third
  int threads = 1;                  // the result is the same for any number
};

struct TrainingResult {
  std::string file;  // the tokenizer file
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t size = 0;        // items in all; less than asked for when the text has no more
  int64_t multi_word = 0;  // items of two or more words
};

// `stage` says what is being done; `done` is how much of the whole is, from 0 to 1.
using TrainingProgress = std::function<void(std::string_view stage, double done)>;

// Throws base::Error (usage) for options that can't be meant.
void check(const TrainingOptions& options);

// Trains on documents collected with a CorpusBuilder. The file depends on the documents, their order
// and the options but for the threads. Throws base::Error when there is no text.
TrainingResult train(Corpus corpus, const TrainingOptions& options,
                     const TrainingProgress& progress = {});

}  // namespace sauropod::tokenizer

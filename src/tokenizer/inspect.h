// What a vocabulary does with given text: bytes per token, the share of multi-word items, which items
// are used most and which are longest.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace sauropod::tokenizer {

struct ItemUse {
  int32_t id = 0;
  int64_t count = 0;  // 0 when no text was given
};

struct Inspection {
  int32_t size = 0;        // of the vocabulary
  int32_t multi_word = 0;  // items of two or more words in it
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t tokens = 0;
  int64_t words = 0;                  // stretches without spaces and line ends
  std::array<int64_t, 5> by_words{};  // tokens with so many words; the last: four or more
  int32_t used = 0;                   // items that occur
  // Multi-word items: with text those that occur, by count and by length; without text of the whole
  // vocabulary, by probability and by length.
  std::vector<ItemUse> most_used, longest;

  int64_t multi_word_tokens() const { return by_words[2] + by_words[3] + by_words[4]; }
};

// Not thread-safe; the tokenizer must outlive it.
class Inspector {
 public:
  explicit Inspector(const Tokenizer& tokenizer);
  void add(std::string_view document);
  // Lists have at most `top` entries.
  Inspection finish(size_t top);

 private:
  const Tokenizer& tokenizer_;
  Inspection result_;
  std::vector<int64_t> counts_;
  std::vector<int32_t> ids_;  // of one document
};

}  // namespace sauropod::tokenizer

// What training keeps of a text: its distinct chunks with their counts, and the runs of words in it,
// from which multi-word items are counted. Both are exact, and the same for any number of threads:
// the text is cut into pieces in a fixed way, pieces are counted in parallel, and their results are
// joined in the order of the text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_table.h"
#include "tokenizer/chunks.h"

namespace sauropod::tokenizer {

constexpr uint32_t run_break = UINT32_MAX;

struct Corpus {
  ByteTable chunks;
  std::vector<int64_t> counts;   // of each chunk, in the whole text
  std::vector<ChunkKind> kinds;  // a function of the chunk's bytes
  // Stretches of two or more words that follow one another directly, as chunk numbers; each stretch
  // is followed by run_break. Words that stand alone are only in `counts`.
  std::vector<uint32_t> runs;
  int64_t documents = 0;
  int64_t bytes = 0;
};

// Collects documents into a Corpus. Not thread-safe; uses `threads` threads itself.
class CorpusBuilder {
 public:
  explicit CorpusBuilder(int threads);
  void add(std::string_view document);
  Corpus finish();
  int64_t bytes() const { return corpus_.bytes; }

 private:
  struct Piece;
  void count_pending();
  void merge(const Piece& piece);

  int threads_;
  Corpus corpus_;
  std::string pending_;
  std::vector<size_t> part_ends_;  // in pending_; a part is a document, or a stretch of a long one
};

}  // namespace sauropod::tokenizer

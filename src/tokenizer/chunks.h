// How training looks at a segment: as chunks, described in docs/tokenizer.md ("Training").
//
// Chunks cover a segment without a gap. Learned items of less than two words lie within a chunk;
// multi-word items are two or more chunks that are words, one after another.
#pragma once

#include <string_view>
#include <vector>

namespace sauropod::tokenizer {

enum class ChunkKind : unsigned char {
  other,   // spaces, tabs, punctuation, identifiers, and words without their leading space
  word,    // a space and a word that begins with a letter: can take part in a multi-word item
  number,  // a space and a word that begins with a digit: can take part, but not as the first
};

struct Chunk {
  std::string_view bytes;
  ChunkKind kind = ChunkKind::other;
};

// Longer stretches are cut into several chunks, and longer words are of the kind `other`.
constexpr size_t max_chunk_bytes = 64;
constexpr size_t max_word_bytes = 40;

void cut_chunks(std::string_view segment, std::vector<Chunk>& out);

}  // namespace sauropod::tokenizer

// The part of training that lies within chunks: candidate pieces, their expected counts, and what a
// chunk costs. Described in docs/tokenizer.md ("Training").
//
// Everything here gives the same numbers for any number of threads: each chunk is computed by itself,
// and expected counts are added up as integers (fixed point).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/byte_table.h"
#include "tokenizer/corpus.h"
#include "tokenizer/trie.h"

namespace sauropod::tokenizer {

// Expected counts are integers in units of 2^-20 of an occurrence.
constexpr double count_unit = 1.0 / (1 << 20);

// The longest piece that is not a whole chunk, and the longest whole chunk taken as a piece, in bytes.
constexpr size_t max_piece_bytes = 16;
constexpr size_t max_whole_piece_bytes = 32;

struct Pieces {
  ByteTable bytes;            // the first 256 are the single bytes, in order
  std::vector<double> costs;  // nats
  Trie trie;                  // of all of them

  uint32_t size() const { return bytes.size(); }
  void rebuild_trie();
  // Keeps the pieces marked true (the bytes must be).
  void keep(const std::vector<bool>& kept);
};

// The single bytes, and the frequent substrings and whole chunks of the corpus: at most `limit` of
// these, those that cover most text first. Their costs come from how often they occur.
Pieces candidate_pieces(const Corpus& corpus, int64_t min_count, size_t limit);

// The best segmentation of one chunk.
struct ChunkCost {
  double cost = 0;  // nats
  int tokens = 0;
};
std::vector<ChunkCost> chunk_costs(const Corpus& corpus, const Pieces& pieces, int threads);

// Expected counts of the pieces over all segmentations of every chunk, chunk c counting weights[c]
// times (Baum-Welch), in count_unit.
std::vector<int64_t> expected_counts(const Corpus& corpus, const std::vector<int64_t>& weights,
                                     const Pieces& pieces, int threads);

// The best segmentation of each piece into other pieces; undefined for the bytes.
std::vector<ChunkCost> piece_alternatives(const Pieces& pieces, int threads);

}  // namespace sauropod::tokenizer

// Exact counts of the frequent n-grams of a sequence of symbols, level by level: an n-gram can only be
// frequent if both (n-1)-grams in it are, and it is told by that pair of numbers. Only frequent ones
// are kept, so memory is bounded by the sequence's length and not by the number of different n-grams.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sauropod::tokenizer {

constexpr uint32_t no_gram = UINT32_MAX;

// The frequent n-grams of one length, numbered by where they first appear.
struct Grams {
  std::vector<uint32_t> at;        // position → the n-gram that begins there, or no_gram
  std::vector<int64_t> count;      // per n-gram
  std::vector<uint32_t> first;     // the first position
  std::vector<int64_t> extension;  // the count of the most frequent (n+1)-gram that holds it, once
                                   // those have been counted and are frequent; else 0
};

// Level 1 from symbols: the symbol's number is the 1-gram's, and no_gram separates stretches that no
// n-gram spans. `weights` says how often each position counts, the same throughout a stretch; empty: once.
Grams single_symbols(std::vector<uint32_t> symbols, size_t distinct,
                     std::span<const int64_t> weights);

// The n-grams with a count of at least min_count, from the (n-1)-grams; fills in shorter.extension.
Grams longer_grams(Grams& shorter, std::span<const int64_t> weights, int64_t min_count);

}  // namespace sauropod::tokenizer

#include "tokenizer/pieces.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "tokenizer/grams.h"
#include "tokenizer/utf8.h"

namespace sauropod::tokenizer {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The pieces that occur in a text of at most max_chunk_bytes, by where they begin.
struct Lattice {
  struct Edge {
    uint16_t begin, end;
    uint32_t piece;
  };
  size_t size = 0;
  std::vector<Edge> edges;  // by `begin`, then by `end`

  void build(std::string_view text, const Trie& trie) {
    size = text.size();
    edges.clear();
    for (size_t begin = 0; begin < size; ++begin) {
      Trie::Cell cell = trie.root();
      for (size_t end = begin; end < size;) {
        const auto byte = static_cast<unsigned char>(text[end]);
        cell = trie.child(cell, byte);
        if (!Trie::matches(cell, byte)) break;
        ++end;
        if (const int32_t piece = Trie::item(cell); piece >= 0)
          edges.push_back({static_cast<uint16_t>(begin), static_cast<uint16_t>(end),
                           static_cast<uint32_t>(piece)});
      }
    }
  }

  // The cheapest way through, without the piece `except`.
  ChunkCost cheapest(const std::vector<double>& costs, uint32_t except = no_gram) const {
    std::array<ChunkCost, max_chunk_bytes + 1> best;
    best.fill({infinity, 0});
    best[0] = {0, 0};
    for (const Edge& edge : edges) {
      if (edge.piece == except) continue;
      const double cost = best[edge.begin].cost + costs[edge.piece];
      if (cost < best[edge.end].cost) best[edge.end] = {cost, best[edge.begin].tokens + 1};
    }
    return best[size];
  }
};

// Adds weight × the probability that each edge is used. Probabilities are multiplied by r^bytes with r
// chosen so that the best way through has 1 in all: sums then stay within range of a double.
void add_expected(const Lattice& lattice, const std::vector<double>& costs,
                  const std::vector<double>& probabilities, double weight,
                  std::vector<int64_t>& counts) {
  const double total_cost = lattice.cheapest(costs).cost;
  const double rate = std::exp(total_cost / static_cast<double>(lattice.size));
  std::array<double, max_chunk_bytes + 1> power, forward, backward;
  power[0] = 1;
  for (size_t i = 1; i <= lattice.size; ++i) power[i] = power[i - 1] * rate;
  forward.fill(0);
  backward.fill(0);
  forward[0] = backward[lattice.size] = 1;
  const auto value = [&](const Lattice::Edge& edge) {
    return probabilities[edge.piece] * power[edge.end - edge.begin];
  };
  for (const auto& edge : lattice.edges) forward[edge.end] += forward[edge.begin] * value(edge);
  for (size_t i = lattice.edges.size(); i-- > 0;) {
    const auto& edge = lattice.edges[i];
    backward[edge.begin] += backward[edge.end] * value(edge);
  }
  const double scale = weight / count_unit / forward[lattice.size];
  SAUROPOD_CHECK(std::isfinite(scale), "a chunk's probability left the range of a double");
  for (const auto& edge : lattice.edges)
    counts[edge.piece] +=
        std::llround(forward[edge.begin] * value(edge) * backward[edge.end] * scale);
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Rules, underlines, table borders and indentation come in every length: a few lengths of each run are
// enough, and none of a run with something attached.
bool useful_runs(std::string_view piece) {
  if (piece.size() > 1 && piece[0] == ' ' && piece[1] != ' ') piece.remove_prefix(1);
  for (size_t begin = 0; begin < piece.size();) {
    const char c = piece[begin];
    size_t end = begin + 1;
    while (end < piece.size() && piece[end] == c) ++end;
    const size_t length = end - begin;
    if (c == ' ') {
      if (length > 16 && length % 8 != 0) return false;
    } else if (length > 4 && (is_punctuation(c) || c == '\t' || c == '\n')) {
      if (length != piece.size() || (length & (length - 1)) != 0) return false;
    }
    begin = end;
  }
  return true;
}

// Whole characters of valid UTF-8, so that items can be shown and streamed.
bool whole_characters(std::string_view piece) {
  for (size_t at = 0; at < piece.size();) {
    const int length = decode_utf8(piece, at).length;
    if (length == 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

struct Candidate {
  std::string_view bytes;
  int64_t count = 0;
  int64_t covered() const { return count * static_cast<int64_t>(bytes.size()); }
};

}  // namespace

void Pieces::rebuild_trie() {
  std::vector<int32_t> ids(size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return bytes[a] < bytes[b]; });
  std::vector<std::string_view> keys;
  keys.reserve(ids.size());
  for (const int32_t id : ids) keys.push_back(bytes[id]);
  trie = Trie::build(keys, ids);
}

void Pieces::keep(const std::vector<bool>& kept) {
  Pieces next;
  for (uint32_t id = 0; id < size(); ++id) {
    SAUROPOD_CHECK(kept[id] || id >= 256);
    if (!kept[id]) continue;
    next.bytes.add(bytes[id]);
    next.costs.push_back(costs[id]);
  }
  next.rebuild_trie();
  *this = std::move(next);
}

Pieces candidate_pieces(const Corpus& corpus, int64_t min_count, size_t limit) {
  // The chunks' bytes, separated; a position counts as often as its chunk.
  std::vector<uint32_t> symbols;
  std::vector<int64_t> weights;
  std::string text;
  for (uint32_t chunk = 0; chunk < corpus.chunks.size(); ++chunk) {
    for (const char c : corpus.chunks[chunk]) {
      symbols.push_back(static_cast<unsigned char>(c));
      text.push_back(c);
      weights.push_back(corpus.counts[chunk]);
    }
    symbols.push_back(no_gram);
    text.push_back('\n');
    weights.push_back(0);
  }
  std::vector<Candidate> candidates;
  const auto consider = [&](std::string_view bytes, int64_t count) {
    if (useful_runs(bytes) && whole_characters(bytes)) candidates.push_back({bytes, count});
  };
  Grams level = single_symbols(std::move(symbols), 256, weights);
  std::vector<int64_t> byte_counts = level.count;
  for (size_t length = 2; length <= max_piece_bytes; ++length) {
    Grams longer = longer_grams(level, weights, min_count);
    // A piece that is always part of the same longer one saves nothing.
    const auto closed = [](const Grams& grams, size_t id) {
      return grams.count[id] > grams.extension[id];
    };
    if (length > 2)
      for (size_t id = 0; id < level.count.size(); ++id)
        if (closed(level, id))
          consider(std::string_view(text).substr(level.first[id], length - 1), level.count[id]);
    level = std::move(longer);
    if (length == max_piece_bytes)
      for (size_t id = 0; id < level.count.size(); ++id)
        consider(std::string_view(text).substr(level.first[id], length), level.count[id]);
  }
  for (uint32_t chunk = 0; chunk < corpus.chunks.size(); ++chunk) {
    const std::string_view bytes = corpus.chunks[chunk];
    if (bytes.size() >= 2 && bytes.size() <= max_whole_piece_bytes &&
        corpus.counts[chunk] >= min_count)
      consider(bytes, corpus.counts[chunk]);
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.covered() != b.covered()) return a.covered() > b.covered();
    return a.bytes < b.bytes;
  });

  Pieces pieces;
  std::vector<int64_t> covered;
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    pieces.bytes.add({&c, 1});
    covered.push_back(std::max<int64_t>(byte_counts[b], 1));
  }
  for (const Candidate& candidate : candidates) {
    if (pieces.size() >= 256 + limit) break;
    // A frequent whole chunk is also a substring: the first, which covers more, counts.
    if (pieces.bytes.add(candidate.bytes) == covered.size()) covered.push_back(candidate.covered());
  }
  const double total =
      static_cast<double>(std::accumulate(covered.begin(), covered.end(), int64_t{0}));
  for (const int64_t bytes : covered)
    pieces.costs.push_back(std::log(total) - std::log(static_cast<double>(bytes)));
  pieces.rebuild_trie();
  return pieces;
}

std::vector<ChunkCost> chunk_costs(const Corpus& corpus, const Pieces& pieces, int threads) {
  std::vector<ChunkCost> costs(corpus.chunks.size());
  base::parallel_for(costs.size(), 4096, threads, [&](size_t begin, size_t end) {
    Lattice lattice;
    for (size_t chunk = begin; chunk < end; ++chunk) {
      lattice.build(corpus.chunks[static_cast<uint32_t>(chunk)], pieces.trie);
      costs[chunk] = lattice.cheapest(pieces.costs);
    }
  });
  return costs;
}

std::vector<int64_t> expected_counts(const Corpus& corpus, const std::vector<int64_t>& weights,
                                     const Pieces& pieces, int threads) {
  std::vector<double> probabilities(pieces.size());
  for (size_t i = 0; i < probabilities.size(); ++i) probabilities[i] = std::exp(-pieces.costs[i]);
  const size_t shares = static_cast<size_t>(std::max(threads, 1));
  std::vector<std::vector<int64_t>> sums(shares, std::vector<int64_t>(pieces.size(), 0));
  base::parallel_for(shares, 1, threads, [&](size_t first, size_t last) {
    Lattice lattice;
    for (size_t share = first; share < last; ++share) {
      // Interleaved: frequent chunks come first, and cheap ones last.
      for (size_t chunk = share; chunk < weights.size(); chunk += shares) {
        if (weights[chunk] == 0) continue;
        lattice.build(corpus.chunks[static_cast<uint32_t>(chunk)], pieces.trie);
        add_expected(lattice, pieces.costs, probabilities, static_cast<double>(weights[chunk]),
                     sums[share]);
      }
    }
  });
  for (size_t share = 1; share < shares; ++share)
    for (size_t i = 0; i < sums[0].size(); ++i) sums[0][i] += sums[share][i];
  return std::move(sums[0]);
}

std::vector<ChunkCost> piece_alternatives(const Pieces& pieces, int threads) {
  std::vector<ChunkCost> costs(pieces.size());
  base::parallel_for(costs.size(), 4096, threads, [&](size_t begin, size_t end) {
    Lattice lattice;
    for (size_t piece = std::max<size_t>(begin, 256); piece < end; ++piece) {
      lattice.build(pieces.bytes[static_cast<uint32_t>(piece)], pieces.trie);
      costs[piece] = lattice.cheapest(pieces.costs, static_cast<uint32_t>(piece));
    }
  });
  return costs;
}

}  // namespace sauropod::tokenizer

#include "tokenizer/phrases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/threads.h"

namespace sauropod::tokenizer {
namespace {

constexpr size_t max_phrase_bytes = 64;
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

Phrases::Phrases(const Corpus& corpus, const PhraseOptions& options)
    : corpus_(&corpus), max_words_(options.max_words) {
  levels_.push_back(single_symbols(corpus.runs, corpus.chunks.size(), {}));
  for (const int64_t count : levels_[0].count) total_words_ += count;
  for (int words = 2; words <= max_words_; ++words)
    levels_.push_back(longer_grams(levels_.back(), {}, options.min_count));

  for (int words = 2; words <= max_words_; ++words) {
    const Grams& grams = levels_[words - 1];
    for (uint32_t gram = 0; gram < grams.count.size(); ++gram) {
      // A phrase that is always part of the same longer one saves less than that one.
      if (grams.count[gram] == grams.extension[gram]) continue;
      const uint32_t* chunks = corpus.runs.data() + grams.first[gram];
      if (corpus.kinds[chunks[0]] != ChunkKind::word) continue;
      size_t bytes = 0;
      for (int w = 0; w < words; ++w) bytes += corpus.chunks[chunks[w]].size();
      if (bytes > max_phrase_bytes) continue;
      if (information(words, gram) < options.min_information) continue;
      list_.push_back({words, gram, 0, grams.count[gram]});
    }
  }
  if (list_.size() > options.limit) {
    const auto saved = [](const Phrase& phrase) { return phrase.count * (phrase.words - 1); };
    // Stable: equals stay in the order of levels and first appearance.
    std::stable_sort(list_.begin(), list_.end(),
                     [&](const Phrase& a, const Phrase& b) { return saved(a) > saved(b); });
    list_.resize(options.limit);
  }
  for (Phrase& phrase : list_)
    phrase.cost = std::log(static_cast<double>(total_words_) / static_cast<double>(phrase.count));
  index_costs();
}

std::string Phrases::bytes(const Phrase& phrase) const {
  std::string text;
  const uint32_t first = levels_[phrase.words - 1].first[phrase.gram];
  for (int w = 0; w < phrase.words; ++w) text += corpus_->chunks[corpus_->runs[first + w]];
  return text;
}

double Phrases::information(int words, uint32_t gram) const {
  const uint32_t first = levels_[words - 1].first[gram];
  const auto count = [&](int length, uint32_t position) {
    return static_cast<double>(levels_[length - 1].count[levels_[length - 1].at[position]]);
  };
  double least = infinity;
  for (int left = 1; left < words; ++left) {
    const double parts = count(left, first) * count(words - left, first + left);
    least = std::min(least, std::log(count(words, first) * static_cast<double>(total_words_)) -
                                std::log(parts));
  }
  return least;
}

void Phrases::keep(const std::vector<bool>& kept) {
  size_t to = 0;
  for (size_t i = 0; i < list_.size(); ++i)
    if (kept[i]) list_[to++] = list_[i];
  list_.resize(to);
  index_costs();
}

void Phrases::index_costs() {
  phrase_of_.assign(levels_.size(), {});
  for (size_t level = 1; level < levels_.size(); ++level)
    phrase_of_[level].assign(levels_[level].count.size(), no_gram);
  for (size_t i = 0; i < list_.size(); ++i)
    phrase_of_[list_[i].words - 1][list_[i].gram] = static_cast<uint32_t>(i);
}

std::vector<int64_t> Phrases::divide(const std::vector<ChunkCost>& chunk_costs, int threads) {
  const std::vector<uint32_t>& runs = corpus_->runs;
  std::vector<int64_t> alone = corpus_->counts;
  for (Phrase& phrase : list_) phrase.count = 0;
  // Equal shares, cut behind a run.
  const size_t shares = static_cast<size_t>(std::max(threads, 1));
  std::vector<size_t> bounds{0};
  for (size_t share = 1; share <= shares; ++share) {
    size_t at = std::max(bounds.back(), runs.size() * share / shares);
    while (at < runs.size() && at > 0 && runs[at - 1] != run_break) ++at;
    bounds.push_back(at);
  }
  struct Used {
    std::vector<int64_t> phrases, chunks;  // chunks that a phrase took
  };
  std::vector<Used> used(shares);
  base::parallel_for(shares, 1, threads, [&](size_t first, size_t last) {
    std::vector<double> best;
    std::vector<uint32_t> chosen;  // the phrase that ends here, or no_gram
    for (size_t share = first; share < last; ++share) {
      Used& mine = used[share];
      mine.phrases.assign(list_.size(), 0);
      mine.chunks.assign(corpus_->chunks.size(), 0);
      for (size_t begin = bounds[share]; begin < bounds[share + 1];) {
        size_t end = begin;
        while (runs[end] != run_break) ++end;
        best.assign(end - begin + 1, infinity);
        chosen.assign(end - begin + 1, no_gram);
        best[0] = 0;
        for (size_t p = begin; p < end; ++p) {
          const double here = best[p - begin];
          const auto reach = [&](size_t words, double cost, uint32_t phrase) {
            if (here + cost < best[p - begin + words]) {
              best[p - begin + words] = here + cost;
              chosen[p - begin + words] = phrase;
            }
          };
          reach(1, chunk_costs[runs[p]].cost, no_gram);
          for (size_t level = 1; level < levels_.size(); ++level) {
            const uint32_t gram = levels_[level].at[p];
            if (gram == no_gram) break;
            const uint32_t phrase = phrase_of_[level][gram];
            if (phrase != no_gram) reach(level + 1, list_[phrase].cost, phrase);
          }
        }
        for (size_t p = end; p > begin;) {
          const uint32_t phrase = chosen[p - begin];
          if (phrase == no_gram) {
            --p;
            continue;
          }
          ++mine.phrases[phrase];
          for (int w = 0; w < list_[phrase].words; ++w) ++mine.chunks[runs[--p]];
        }
        begin = end + 1;
      }
    }
  });
  for (const Used& mine : used) {
    for (size_t i = 0; i < list_.size(); ++i) list_[i].count += mine.phrases[i];
    for (size_t c = 0; c < alone.size(); ++c) alone[c] -= mine.chunks[c];
  }
  return alone;
}

ChunkCost Phrases::alternative(const Phrase& phrase,
                               const std::vector<ChunkCost>& chunk_costs) const {
  const uint32_t first = levels_[phrase.words - 1].first[phrase.gram];
  std::vector<ChunkCost> best(phrase.words + 1, {infinity, 0});
  best[0] = {0, 0};
  for (int p = 0; p < phrase.words; ++p) {
    const auto reach = [&](int words, ChunkCost cost) {
      const double sum = best[p].cost + cost.cost;
      if (sum < best[p + words].cost) best[p + words] = {sum, best[p].tokens + cost.tokens};
    };
    reach(1, chunk_costs[corpus_->runs[first + p]]);
    for (int words = 2; p + words <= phrase.words && words < phrase.words; ++words) {
      const uint32_t part = phrase_of_[words - 1][levels_[words - 1].at[first + p]];
      if (part != no_gram) reach(words, {list_[part].cost, 1});
    }
  }
  return best[phrase.words];
}

}  // namespace sauropod::tokenizer

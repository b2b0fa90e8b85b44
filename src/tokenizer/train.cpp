#include "tokenizer/train.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "tokenizer/phrases.h"
#include "tokenizer/pieces.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace sauropod::tokenizer {
namespace {

// What a token saved is worth beside the likelihood, in nats: about what an item costs. Likelihood alone
// prefers rare names to phrases that occur all the time.
constexpr double token_price = 10;
// The floor of a phrase's mutual information, in nats: below it words stand together by accident.
constexpr double min_information = 0.5;
// Pieces taken as candidates, for each item asked for: those that cover most text.
constexpr size_t candidates_per_item = 5;
// And phrases: those that save most tokens.
constexpr size_t phrases_per_item = 3;
// Each round of pruning keeps this share.
constexpr double kept_share = 0.75;
// How much of the work the pieces of words are, before phrases join them; for the progress shown.
constexpr double words_share = 0.5;

// The digamma function, for x > 0 (Bernardo 1976).
double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double xx = 1 / x;
  const double xx2 = xx * xx;
  const double xx4 = xx2 * xx2;
  return result + std::log(x) + (1.0 / 24) * xx2 - (7.0 / 960) * xx4 + (31.0 / 8064) * xx4 * xx2 -
         (127.0 / 30720) * xx4 * xx4;
}

class Trainer {
 public:
  Trainer(Corpus corpus, const TrainingOptions& options, const TrainingProgress& progress)
      : corpus_(std::move(corpus)),
        options_(options),
        progress_(progress),
        target_(static_cast<size_t>(options.vocabulary_size - Tokenizer::first_learned)),
        pieces_(candidate_pieces(corpus_, std::max<int64_t>(2, options.min_count / 3),
                                 std::max<size_t>(candidates_per_item * target_, 20000))),
        phrases_(corpus_, PhraseOptions{.max_words = 1}) {}

  TrainingResult run() {
    weights_ = corpus_.counts;
    shrink("words", 0, words_share, 2 * target_);
    if (options_.max_words > 1) {
      phrases_ = Phrases(corpus_, {.max_words = options_.max_words,
                                   .min_count = options_.min_count,
                                   .min_information = min_information,
                                   .limit = phrases_per_item * target_});
    }
    shrink("phrases", words_share, 1, target_);
    for (int i = 0; i < 3; ++i) estimate();
    return result();
  }

 private:
  void note(std::string_view stage, double done) const {
    if (progress_) progress_(stage, done);
  }
  size_t learned() const { return pieces_.size() - 256 + phrases_.list().size(); }

  // One round of EM: counts from the costs, and costs from the counts.
  void estimate() {
    if (!phrases_.list().empty())
      weights_ = phrases_.divide(chunk_costs(corpus_, pieces_, options_.threads), options_.threads);
    counts_ = expected_counts(corpus_, weights_, pieces_, options_.threads);
    int64_t total = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
    for (const auto& phrase : phrases_.list()) total += phrase.count << 20;
    const double log_total = digamma(static_cast<double>(total) * count_unit);
    // A piece that lost its use keeps a cost, for the pruning to compare; bytes always keep one.
    const auto cost = [&](double count) { return log_total - digamma(std::max(count, 0.5)); };
    for (size_t i = 0; i < counts_.size(); ++i)
      pieces_.costs[i] = cost(static_cast<double>(counts_[i]) * count_unit);
    for (auto& phrase : phrases_.list()) phrase.cost = cost(static_cast<double>(phrase.count));
  }

  // Alternates estimation and pruning until `target` learned items are left.
  void shrink(std::string_view stage, double from, double to, size_t target) {
    note(stage, from);
    for (int i = 0; i < 2; ++i) estimate();
    const double whole = std::log(static_cast<double>(learned()) / static_cast<double>(target));
    while (learned() > target) {
      prune(std::max(target, static_cast<size_t>(static_cast<double>(learned()) * kept_share)));
      estimate();
      const double left = std::log(static_cast<double>(learned()) / static_cast<double>(target));
      note(stage, from + (to - from) * (1 - left / whole));
    }
  }

  // Keeps the `target` items whose loss would cost most.
  void prune(size_t target) {
    struct Loss {
      double loss;
      bool phrase;
      uint32_t index;
    };
    std::vector<Loss> losses;
    std::vector<ChunkCost> costs;
    if (!phrases_.list().empty()) costs = chunk_costs(corpus_, pieces_, options_.threads);
    const std::vector<ChunkCost> others = piece_alternatives(pieces_, options_.threads);
    const auto loss = [](double count, ChunkCost other, double cost) {
      return count * (other.cost - cost + token_price * (other.tokens - 1));
    };
    for (uint32_t i = 256; i < pieces_.size(); ++i) {
      const double count = static_cast<double>(counts_[i]) * count_unit;
      losses.push_back({loss(count, others[i], pieces_.costs[i]), false, i});
    }
    for (uint32_t i = 0; i < phrases_.list().size(); ++i) {
      const auto& phrase = phrases_.list()[i];
      const ChunkCost other = phrases_.alternative(phrase, costs);
      losses.push_back({loss(static_cast<double>(phrase.count), other, phrase.cost), true, i});
    }
    std::sort(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) {
      if (a.loss != b.loss) return a.loss > b.loss;
      return a.phrase != b.phrase ? a.phrase < b.phrase : a.index < b.index;
    });
    std::vector<bool> keep_piece(pieces_.size(), false), keep_phrase(phrases_.list().size(), false);
    std::fill_n(keep_piece.begin(), 256, true);
    for (size_t i = 0; i < losses.size() && i < target; ++i)
      (losses[i].phrase ? keep_phrase : keep_piece)[losses[i].index] = true;
    pieces_.keep(keep_piece);
    phrases_.keep(keep_phrase);
  }

  TrainingResult result() const {
    const auto cost = [](double nats) {
      return static_cast<uint32_t>(std::clamp<int64_t>(std::llround(nats / cost_unit), 1, max_cost));
    };
    FileContent content;
    for (int b = 0; b < 256; ++b) content.byte_costs.push_back(cost(pieces_.costs[b]));
    for (uint32_t i = 256; i < pieces_.size(); ++i)
      content.items.push_back({std::string(pieces_.bytes[i]), cost(pieces_.costs[i])});
    for (const auto& phrase : phrases_.list())
      content.items.push_back({phrases_.bytes(phrase), cost(phrase.cost)});
    std::sort(content.items.begin(), content.items.end(), [](const Item& a, const Item& b) {
      return a.cost != b.cost ? a.cost < b.cost : a.bytes < b.bytes;
    });
    TrainingResult result;
    result.documents = corpus_.documents;
    result.bytes = corpus_.bytes;
    result.size = Tokenizer::first_learned + static_cast<int64_t>(content.items.size());
    result.multi_word = static_cast<int64_t>(phrases_.list().size());
    result.file = write_file(content, {{"vocabulary_size", options_.vocabulary_size},
                                       {"max_words", options_.max_words},
                                       {"min_count", options_.min_count},
                                       {"documents", corpus_.documents},
                                       {"bytes", corpus_.bytes}});
    return result;
  }

  Corpus corpus_;
  TrainingOptions options_;
  const TrainingProgress& progress_;
  size_t target_;
  Pieces pieces_;
  Phrases phrases_;
  std::vector<int64_t> weights_;
  std::vector<int64_t> counts_;
};

}  // namespace

void check(const TrainingOptions& options) {
  if (options.vocabulary_size < Tokenizer::first_learned)
    base::fail_usage("a vocabulary of {} items is too small: the 256 bytes and the end-of-document item need {}; ask for more, e.g. 16384",
                     options.vocabulary_size, Tokenizer::first_learned);
  if (options.vocabulary_size > max_items)
    base::fail_usage("a vocabulary of {} items is too large: at most {}", options.vocabulary_size, max_items);
  if (options.max_words < 1 || options.max_words > 4)
    base::fail_usage("max-words is {}: an item has 1 to 4 words", options.max_words);
  if (options.min_count < 2)
    base::fail_usage("min-count is {}: what occurs once saves nothing; use 2 or more", options.min_count);
}

TrainingResult train(Corpus corpus, const TrainingOptions& options,
                     const TrainingProgress& progress) {
  check(options);
  if (corpus.bytes == 0)
    base::fail("there is no text to train on: {} documents, all empty", corpus.documents);
  return Trainer(std::move(corpus), options, progress).run();
}

}  // namespace sauropod::tokenizer

// The part of training that lies across words: candidate phrases, how a run of words is best divided
// into phrases and single words, and what a phrase saves. Described in docs/tokenizer.md ("Training").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/corpus.h"
#include "tokenizer/grams.h"
#include "tokenizer/pieces.h"

namespace sauropod::tokenizer {

struct PhraseOptions {
  int max_words = 4;
  int64_t min_count = 10;
  // The least pointwise mutual information, in nats, of the parts of any cut of the phrase in two.
  double min_information = 0.5;
  size_t limit = 0;  // of candidates: those that save most tokens
};

class Phrases {
 public:
  struct Phrase {
    int words = 0;
    uint32_t gram = 0;   // number in the level of its word count
    double cost = 0;     // nats
    int64_t count = 0;   // in the best division of the runs
  };

  // Counts word n-grams and takes the candidates. The corpus must outlive this.
  Phrases(const Corpus& corpus, const PhraseOptions& options);

  std::vector<Phrase>& list() { return list_; }
  const std::vector<Phrase>& list() const { return list_; }
  std::string bytes(const Phrase& phrase) const;
  void keep(const std::vector<bool>& kept);

  // Divides every run at the least cost, given what each chunk costs by itself. Sets the counts of the
  // phrases and returns how often each chunk is left to stand by itself, runs and elsewhere.
  std::vector<int64_t> divide(const std::vector<ChunkCost>& chunk_costs, int threads);

  // The best division of a phrase without itself.
  ChunkCost alternative(const Phrase& phrase, const std::vector<ChunkCost>& chunk_costs) const;

 private:
  double information(int words, uint32_t gram) const;
  void index_costs();

  const Corpus* corpus_;
  int max_words_;
  std::vector<Grams> levels_;  // levels_[n - 1]: n-grams of words
  int64_t total_words_ = 0;
  std::vector<Phrase> list_;
  // Per level and gram, the phrase's place in list_, or no_gram.
  std::vector<std::vector<uint32_t>> phrase_of_;
};

}  // namespace sauropod::tokenizer

// The training samples of a run: weighted corpora, in an order that is a pure function of the seed
// (docs/data.md states it exactly).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "data/slots.h"
#include "data/token_stream.h"

namespace sauropod::config {
class Section;
}

namespace sauropod::data {

struct CorpusOptions {
  std::string path;   // of the packed data, without .bin or .idx
  double weight = 0;  // its share of the samples is weight / sum; 0 for all: by their tokens

  void declare(config::Section& section);
  static CorpusOptions from_string(std::string_view path);
};

// Thread-safe.
class TrainingData {
 public:
  // Opens and checks every corpus. Throws base::Error (usage) for a missing or unusable one: fewer
  // tokens than context + 1, a weight too small for one slot in 4,096, some weights given and
  // others not. `vocabulary` bounds the ids that sample() accepts (0: any).
  TrainingData(std::vector<CorpusOptions> corpora, int64_t context, uint64_t seed,
               int64_t vocabulary = 0);

  // Sample `index`: `out` has context + 1 tokens, inputs are the first context of them and targets
  // the last. Neighbouring samples of a corpus share one token, so that each token is a target once
  // an epoch. Throws base::Error when an id is outside the vocabulary.
  void sample(uint64_t index, std::span<int32_t> out) const;

  // Which corpus a sample comes from, and which of that corpus's samples it is.
  Slots::Place place(uint64_t index) const { return slots_.place(index); }

  int64_t context() const { return context_; }
  uint64_t tokens() const;  // of all corpora together, one epoch each

  // What a checkpoint keeps, to find out on resume whether the data are the same:
  // {"context", "seed", "corpora": [{"path", "weight", "quota", "tokens", "documents", "hash"}]}.
  // "hash" is IndexedDataset::fingerprint().
  nlohmann::json describe() const;

  // Throws base::Error (usage) when the pack.json beside a corpus names another tokenizer. Corpora
  // without one (made by Megatron's tools) pass.
  void check_tokenizer(const std::string& hash) const;

 private:
  std::vector<CorpusOptions> options_;
  std::vector<Corpus> corpora_;
  int64_t context_;
  uint64_t seed_;
  int64_t vocabulary_;
  std::vector<std::unique_ptr<TokenStream>> streams_;
  Slots slots_;
};

// Compares two results of TrainingData::describe(): empty when both give the same samples,
// otherwise what differs, in words. Paths may differ.
std::string data_difference(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace sauropod::data

#include "data/training_data.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "config/section.h"

namespace sauropod::data {
namespace {

std::vector<Corpus> open_all(const std::vector<CorpusOptions>& options, int64_t context) {
  if (options.empty()) base::fail_usage("no training data: give at least one packed corpus");
  std::vector<Corpus> corpora;
  for (const CorpusOptions& option : options) {
    corpora.push_back(open_corpus(option.path));
    const uint64_t tokens = corpora.back().dataset->tokens();
    if (tokens < static_cast<uint64_t>(context) + 1)
      base::fail_usage(
          "{} holds {} tokens, and one sample needs {} (the context and one more): shorten the "
          "context or pack more text",
          option.path, tokens, context + 1);
  }
  return corpora;
}

std::vector<uint64_t> quotas_of(const std::vector<CorpusOptions>& options,
                                const std::vector<Corpus>& corpora) {
  size_t weighted = 0;
  for (const CorpusOptions& option : options) {
    if (!(option.weight >= 0) || !std::isfinite(option.weight))
      base::fail_usage("the weight of {} is {}: give a number above 0", option.path, option.weight);
    weighted += option.weight > 0;
  }
  if (weighted != 0 && weighted != options.size())
    base::fail_usage(
        "{} of {} corpora have a weight: give every one a weight, or none to weigh them by their "
        "tokens",
        weighted, options.size());
  std::vector<double> weights;
  for (size_t i = 0; i < options.size(); ++i)
    weights.push_back(weighted > 0 ? options[i].weight
                                   : static_cast<double>(corpora[i].dataset->tokens()));
  std::vector<uint64_t> quotas = slot_quotas(weights);
  for (size_t i = 0; i < quotas.size(); ++i)
    if (quotas[i] == 0)
      base::fail_usage(
          "the weight of {} gives it less than one sample in {}: it would never be read; give it "
          "more weight or leave it out",
          options[i].path, kSlotsPerBlock);
  return quotas;
}

}  // namespace

void CorpusOptions::declare(config::Section& section) {
  section.option("path", path,
                 {.help = "Packed data: the path that `data pack` wrote, without .bin or .idx",
                  .required = true});
  section.option(
      "weight", weight,
      {.help = "Share of the samples, relative to the other corpora's weights; 0 for all: "
               "by their tokens",
       .min = 0});
}

CorpusOptions CorpusOptions::from_string(std::string_view path) {
  return {.path = std::string(path)};
}

TrainingData::TrainingData(std::vector<CorpusOptions> corpora, int64_t context, uint64_t seed,
                           int64_t vocabulary)
    : options_(std::move(corpora)),
      corpora_(open_all(options_, context)),
      context_(context),
      seed_(seed),
      vocabulary_(vocabulary),
      slots_(quotas_of(options_, corpora_), seed) {
  SAUROPOD_CHECK(context > 0);
  for (size_t i = 0; i < corpora_.size(); ++i)
    streams_.push_back(std::make_unique<TokenStream>(
        corpora_[i].dataset, base::random_key(seed, fmt::format("data.documents.{}", i)),
        slots_.quotas()[i] * static_cast<uint64_t>(context)));
}

void TrainingData::sample(uint64_t index, std::span<int32_t> out) const {
  SAUROPOD_CHECK(out.size() == static_cast<size_t>(context_) + 1);
  const Slots::Place place = slots_.place(index);
  uint64_t begin = 0;
  SAUROPOD_CHECK(!__builtin_mul_overflow(place.index, static_cast<uint64_t>(context_), &begin),
                 "sample {} lies outside 64 bits", index);
  streams_[place.corpus]->read(begin, out, vocabulary_);
}

uint64_t TrainingData::tokens() const {
  uint64_t sum = 0;
  for (const Corpus& corpus : corpora_) sum += corpus.dataset->tokens();
  return sum;
}

nlohmann::json TrainingData::describe() const {
  nlohmann::json corpora = nlohmann::json::array();
  for (size_t i = 0; i < corpora_.size(); ++i)
    corpora.push_back({{"path", options_[i].path},
                       {"weight", options_[i].weight},
                       {"quota", slots_.quotas()[i]},
                       {"tokens", corpora_[i].dataset->tokens()},
                       {"documents", corpora_[i].dataset->documents()},
                       {"hash", corpora_[i].dataset->fingerprint()}});
  return {{"context", context_}, {"seed", seed_}, {"corpora", corpora}};
}

void TrainingData::check_tokenizer(const std::string& hash) const {
  for (const Corpus& corpus : corpora_) data::check_tokenizer(corpus, hash);
}

std::string data_difference(const nlohmann::json& before, const nlohmann::json& now) {
  try {
    for (const char* key : {"context", "seed"})
      if (before.at(key) != now.at(key))
        return fmt::format("{} was {} and is {}", key, before.at(key).dump(), now.at(key).dump());
    const auto& old_corpora = before.at("corpora");
    const auto& new_corpora = now.at("corpora");
    if (old_corpora.size() != new_corpora.size())
      return fmt::format("there were {} corpora and are {}", old_corpora.size(),
                         new_corpora.size());
    for (size_t i = 0; i < old_corpora.size(); ++i) {
      const auto path = new_corpora[i].at("path").get<std::string>();
      if (old_corpora[i].at("hash") != new_corpora[i].at("hash"))
        return fmt::format("corpus {} ({}) holds other data than before", i + 1, path);
      if (old_corpora[i].at("quota") != new_corpora[i].at("quota"))
        return fmt::format("corpus {} ({}) had {} of {} samples and has {}", i + 1, path,
                           old_corpora[i].at("quota").dump(), kSlotsPerBlock,
                           new_corpora[i].at("quota").dump());
    }
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("the description of the data is unreadable ({})", error.what());
  }
  return {};
}

}  // namespace sauropod::data

#include "data/inspect.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace sauropod::data {
namespace {

constexpr size_t kLongest = 5;
constexpr uint64_t kBlock = uint64_t{1} << 20;

}  // namespace

nlohmann::ordered_json inspect(const Corpus& corpus, int64_t vocabulary) {
  const formats::IndexedDataset& dataset = *corpus.dataset;
  int32_t largest = -1;
  std::vector<int32_t> block;
  for (uint64_t begin = 0; begin < dataset.tokens(); begin += kBlock) {
    block.resize(std::min(kBlock, dataset.tokens() - begin));
    dataset.read(begin, block, vocabulary);
    largest = std::max(largest, *std::max_element(block.begin(), block.end()));
  }

  struct Length {
    uint64_t tokens, document;
  };
  std::vector<Length> lengths;
  lengths.reserve(dataset.documents());
  for (uint64_t d = 0; d < dataset.documents(); ++d)
    lengths.push_back({dataset.document_begin(d + 1) - dataset.document_begin(d), d});
  const auto longer = [](const Length& a, const Length& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.document < b.document;
  };
  nlohmann::ordered_json statistics = {{"mean", 0}, {"median", 0}, {"longest", 0}};
  auto longest = nlohmann::ordered_json::array();
  if (!lengths.empty()) {
    const auto middle = lengths.begin() + static_cast<int64_t>(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end(), longer);
    statistics["mean"] =
        static_cast<double>(dataset.tokens()) / static_cast<double>(lengths.size());
    statistics["median"] = middle->tokens;
    const auto shown = lengths.begin() + static_cast<int64_t>(std::min(kLongest, lengths.size()));
    std::partial_sort(lengths.begin(), shown, lengths.end(), longer);
    statistics["longest"] = lengths.front().tokens;
    for (auto it = lengths.begin(); it != shown; ++it)
      longest.push_back({{"document", it->document}, {"tokens", it->tokens}});
  }

  const std::string data_hash = dataset.data_hash();
  if (!corpus.data_hash.empty() && corpus.data_hash != data_hash)
    base::fail("{}.bin does not hold what was packed (XXH3-128 {}, pack.json says {}): pack again",
               dataset.prefix().string(), data_hash, corpus.data_hash);
  return {{"path", dataset.prefix().string()},    {"token_type", formats::name_of(dataset.type())},
          {"documents", dataset.documents()},     {"sequences", dataset.sequences()},
          {"tokens", dataset.tokens()},           {"largest_id", largest},
          {"tokens_per_document", statistics},    {"longest_documents", longest},
          {"hash", dataset.fingerprint()},        {"bin_xxh3_128", data_hash},
          {"verified", !corpus.data_hash.empty()}};
}

std::string decode_document(const Corpus& corpus, const tokenizer::Tokenizer& tokenizer,
                            uint64_t document) {
  const formats::IndexedDataset& dataset = *corpus.dataset;
  const uint64_t begin = dataset.document_begin(document);
  std::vector<int32_t> tokens(dataset.document_begin(document + 1) - begin);
  dataset.read(begin, tokens, tokenizer.size());
  return tokenizer.decode(tokens);
}

}  // namespace sauropod::data

// Opening packed data: the index and data of one corpus with the pack.json beside them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "formats/indexed_dataset.h"

namespace sauropod::data {

struct Corpus {
  std::shared_ptr<const formats::IndexedDataset> dataset;
  // From the pack.json beside it; empty when there is none.
  std::string tokenizer_hash;
  std::string data_hash;  // XXH3-128 of the .bin
};

// Opens PREFIX.bin and PREFIX.idx. Throws base::Error: (usage) when they are missing, with what to
// give instead; when they are damaged; when the pack.json in the same folder describes other data
// (a packing that was interrupted while replacing an older one).
Corpus open_corpus(const std::filesystem::path& prefix);

// Throws base::Error (usage) when the corpus is known to be packed with another tokenizer.
void check_tokenizer(const Corpus& corpus, const std::string& hash);

}  // namespace sauropod::data

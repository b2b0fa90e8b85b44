// Packing: documents to token files for training, with a part held out for evaluation. What is
// written is described in docs/data.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/encode.h"

namespace sauropod::data {

struct PackOptions {
  std::vector<std::string> inputs;  // as for formats::list_inputs
  std::filesystem::path out;        // folder
  double valid_fraction = 0.01;     // of the documents, in [0, 1)
  std::string field = "text";       // of JSON lines
  int threads = 1;                  // that encode
  // Called on the calling thread now and then with the text bytes packed so far; may be empty.
  std::function<void(uint64_t bytes)> progress = {};
};

struct SplitCounts {
  uint64_t documents = 0;
  uint64_t tokens = 0;    // end-of-document items included
  uint64_t bytes = 0;     // of text
  std::string data_hash;  // XXH3-128 of the .bin
};

// How the held-out side came about: as asked; by hashes; no hash fell below the fraction, so the
// document with the smallest was taken; there is only one document, so its end was taken.
enum class HeldOut { none, by_hash, smallest_hash, end_of_document };
std::string_view name_of(HeldOut held_out);

struct PackResult {
  SplitCounts train, valid;
  uint64_t empty_documents = 0;  // left out
  HeldOut held_out = HeldOut::none;
  nlohmann::ordered_json record;  // the content of pack.json
};

// Writes train.bin, train.idx, valid.bin, valid.idx and, last, pack.json into options.out,
// replacing an earlier packing there. The files are the same, byte for byte, for any number of
// threads. On any failure, nothing is written and an earlier packing stays. Throws base::Error
// (usage) when a side of the split would be empty.
PackResult pack(const Encoder& encoder, const PackOptions& options);

}  // namespace sauropod::data

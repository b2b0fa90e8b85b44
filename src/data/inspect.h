// Looking into packed data: counts, the longest documents, whether everything is as it should be;
// and the documents' text again, byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/corpus.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::data {

// Reads all of the corpus: {"path", "token_type", "documents", "sequences", "tokens", "largest_id",
// "tokens_per_document" {"mean", "median", "longest"}, "longest_documents" [{"document",
// "tokens"}], "hash", "bin_xxh3_128", "verified"}; "verified" is true when the pack.json beside it
// names the same hash of the .bin. Throws base::Error when it names another, and for ids outside
// `vocabulary` (0: not checked).
nlohmann::ordered_json inspect(const Corpus& corpus, int64_t vocabulary);

// The text of one document. End-of-document items stand for no bytes.
std::string decode_document(const Corpus& corpus, const tokenizer::Tokenizer& tokenizer,
                            uint64_t document);

}  // namespace sauropod::data

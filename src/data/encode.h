// Documents to tokens, on several threads, in the order of the input.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/documents.h"

namespace sauropod::tokenizer {
class Tokenizer;
}

namespace sauropod::data {

// What packing needs of a tokenizer.
struct Encoder {
  // Both thread-safe.
  std::function<void(std::string_view text, std::vector<int32_t>& append_to)> encode;
  std::function<std::string_view(int32_t id)> bytes_of;
  int64_t vocabulary = 0;
  int32_t end_of_document = 0;
  std::string hash;
};
// The tokenizer must outlive the encoder.
Encoder encoder_of(const tokenizer::Tokenizer& tokenizer);
// The number of text bytes of each item, by id.
std::vector<int32_t> item_bytes(const tokenizer::Tokenizer& tokenizer);

// The views last for the call.
struct EncodedDocument {
  std::string_view name;
  uint64_t bytes;                   // of the text
  uint64_t split_hash;              // see split_hash()
  std::span<const int32_t> tokens;  // the end-of-document item included
};

// Decides on which side of the held-out split a text falls: XXH3-64 with a fixed seed, of its bytes
// alone, so that it does not depend on the order, name or number of documents.
uint64_t split_hash(std::string_view text);

// Calls `receive` for each document of the inputs, in order, on the calling thread, while one
// thread reads and `threads` encode. Memory is bounded: a few megabytes a thread and the largest
// documents. The first exception, from wherever it comes, ends the work and is rethrown.
void encode_documents(const std::vector<formats::InputFile>& inputs,
                      const formats::DocumentOptions& options, const Encoder& encoder, int threads,
                      const std::function<void(const EncodedDocument&)>& receive);

}  // namespace sauropod::data

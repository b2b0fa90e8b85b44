#include "tokenizer/export_huggingface.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer_file.h"

namespace sauropod::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

// The hard boundaries of segment.h, for the Oniguruma library.
constexpr const char* boundary_pattern = R"(\n+|[,()]|(?<=[a-z][a-z])\.(?=[ \r\n]|\z))";

// A cost of c units is written as the score -(c · 4096 + 1): the model only compares sums, so the unit
// is free, integers are read and added exactly, and the 1 makes fewer items win among equal sums.
constexpr double score_scale = 4096;
// Nothing in a text may become the special item, whatever the cost of spelling it.
constexpr double special_score = -1e15;

// The byte-level alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 on.
std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> alphabet;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = printable ? b : next++;
    if (c < 0x80) {
      alphabet[b] = std::string(1, static_cast<char>(c));
    } else {
      alphabet[b] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
  }
  return alphabet;
}

}  // namespace

std::string to_huggingface(const Tokenizer& tokenizer) {
  const std::array<std::string, 256> alphabet = byte_alphabet();
  const std::string name(tokenizer.end_of_document_name());
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  Json vocabulary = Json::array();
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (id == tokenizer.end_of_document()) {
      vocabulary.push_back({name, special_score});
      continue;
    }
    std::string text;
    for (const char c : tokenizer.bytes_of(id)) text += alphabet[static_cast<unsigned char>(c)];
    vocabulary.push_back({text, -(tokenizer.cost_of(id) * score_scale + 1)});
  }
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {{{"id", tokenizer.end_of_document()},
         {"content", name},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", boundary_pattern}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          byte_level}}}},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", nullptr},
        {"vocab", vocabulary},
        {"byte_fallback", false}}}};
  return file.dump(-1) + "\n";
}

}  // namespace sauropod::tokenizer

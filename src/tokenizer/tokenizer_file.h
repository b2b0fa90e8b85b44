// The tokenizer file: format version 1, specified in docs/tokenizer.md ("The file").
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::tokenizer {

// Costs are negative log-probabilities in units of 2^-20 nats, between 1 and max_cost.
constexpr double cost_unit = 1.0 / (1 << 20);
constexpr uint32_t max_cost = (1U << 26) - 1;
// Items are at most this long, which bounds the encoder's work per byte.
constexpr size_t max_item_bytes = 255;
constexpr int32_t max_items = 1 << 27;

struct Item {
  std::string bytes;
  uint32_t cost = 0;
};

// What a file says. `items` are the learned ones: item i has id 257 + i.
struct FileContent {
  std::vector<uint32_t> byte_costs;  // 256
  std::vector<Item> items;
};

// The file's bytes. `training` is kept in it for people and programs to read; encoding needs it not.
std::string write_file(const FileContent& content, const nlohmann::json& training);

// Throws base::Error that names `name` and says what is wrong and where.
FileContent read_file(std::string_view bytes, std::string_view name);

// Bytes as printable text and back: valid UTF-8 without control characters stands for itself, a
// backslash is doubled, any other byte is \xHH.
std::string escape(std::string_view bytes);
// False when the text is not of that form.
bool unescape(std::string_view text, std::string& bytes);

}  // namespace sauropod::tokenizer

#include "tokenizer/tokenizer_file.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"
#include "tokenizer/utf8.h"

namespace sauropod::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr const char* format_name = "sauropod-tokenizer";
constexpr int format_version = 1;
constexpr std::string_view checksum_key = "\"checksum\": \"";
constexpr const char* end_of_document = "<|endofdocument|>";

const Json boundaries = Json::array({"newlines", "comma", "parentheses", "sentence-dot"});
const Json specials = Json::array({Json::object({{"id", 0}, {"name", end_of_document}})});

constexpr const char* remedy = "take another copy of the file, or train it again";

// Fails unless `object` has the key with a value of this type.
const Json& member(const Json& object, const char* key, Json::value_t type, std::string_view name) {
  const auto found = object.find(key);
  if (found == object.end())
    base::fail("{}: \"{}\" is missing: not a tokenizer file of this program, or a damaged one", name, key);
  const bool integers = type == Json::value_t::number_unsigned && found->is_number_integer();
  if (found->type() != type && !integers)
    base::fail("{}: \"{}\" should not be {}: {}", name, key, found->type_name(), remedy);
  return *found;
}

uint32_t read_cost(const Json& value, std::string_view where, std::string_view name) {
  if (!value.is_number_integer() || value < 1 || value > max_cost)
    base::fail("{}: the cost of {} is {}, which is not an integer from 1 to {}: {}", name, where,
               value.dump(-1, ' ', false, Json::error_handler_t::replace), max_cost, remedy);
  return value.get<uint32_t>();
}

// The checksum is of all bytes before the line that holds it.
void check_checksum(std::string_view bytes, const Json& file, std::string_view name) {
  const size_t at = bytes.rfind(checksum_key);
  const std::string stated = member(file, "checksum", Json::value_t::string, name);
  if (at == std::string_view::npos || base::hash128(bytes.substr(0, at)) != stated)
    base::fail("{}: the content does not match the checksum in it: the file was altered; {}", name, remedy);
}

}  // namespace

std::string escape(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint point = decode_utf8(bytes, at);
    const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
    if (point.length == 0 || control) {
      // A control character of two bytes (U+0080 to U+009F) is escaped byte by byte.
      for (int i = 0; i < std::max(point.length, 1); ++i)
        text += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[at + i]));
    } else if (point.value == '\\') {
      text += "\\\\";
    } else {
      text += bytes.substr(at, point.length);
    }
    at += std::max(point.length, 1);
  }
  return text;
}

bool unescape(std::string_view text, std::string& bytes) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  bytes.clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      bytes.push_back(text[at]);
    } else if (at + 1 < text.size() && text[at + 1] == '\\') {
      bytes.push_back('\\');
      ++at;
    } else if (at + 3 < text.size() && text[at + 1] == 'x' && digit(text[at + 2]) >= 0 &&
               digit(text[at + 3]) >= 0) {
      bytes.push_back(static_cast<char>(digit(text[at + 2]) * 16 + digit(text[at + 3])));
      at += 3;
    } else {
      return false;
    }
  }
  return true;
}

std::string write_file(const FileContent& content, const nlohmann::json& training) {
  SAUROPOD_CHECK(content.byte_costs.size() == 256);
  std::string out = "{\n";
  out += fmt::format("\"format\": \"{}\",\n\"version\": {},\n", format_name, format_version);
  out += fmt::format("\"training\": {},\n", training.dump());
  out += fmt::format("\"boundaries\": {},\n", boundaries.dump());
  out += fmt::format("\"specials\": {},\n", specials.dump());
  out += fmt::format("\"size\": {},\n\"bytes\": [", 257 + content.items.size());
  for (int b = 0; b < 256; ++b)
    out += fmt::format("{}{}", b == 0 ? "" : b % 16 == 0 ? ",\n" : ", ", content.byte_costs[b]);
  out += "],\n\"items\": [";
  bool first = true;
  for (const Item& item : content.items) {
    SAUROPOD_CHECK(item.bytes.size() >= 2 && item.bytes.size() <= max_item_bytes);
    SAUROPOD_CHECK(item.cost >= 1 && item.cost <= max_cost);
    out += fmt::format("{}[{}, {}]", first ? "\n" : ",\n", Json(escape(item.bytes)).dump(), item.cost);
    first = false;
  }
  out += "\n],\n";
  const std::string checksum = base::hash128(out);
  out += fmt::format("{}{}\"\n}}\n", checksum_key, checksum);
  return out;
}

FileContent read_file(std::string_view bytes, std::string_view name) {
  Json file;
  try {
    file = Json::parse(bytes);
  } catch (const Json::parse_error& error) {
    base::fail("{}: not a tokenizer file, or one cut short or altered: byte {} of {} isn't the JSON expected there; {}",
               name, error.byte, bytes.size(), remedy);
  }
  if (!file.is_object() || !file.contains("format") || file["format"] != format_name)
    base::fail("{}: not a tokenizer file of this program (no \"format\": \"{}\"); make one with `sauropod tokenizer train`",
               name, format_name);
  const Json& version = member(file, "version", Json::value_t::number_unsigned, name);
  if (version != format_version)
    base::fail("{}: format version {}, and this program reads version {}: use the program that wrote it, or train again",
               name, version.dump(), format_version);
  check_checksum(bytes, file, name);
  if (member(file, "boundaries", Json::value_t::array, name) != boundaries)
    base::fail("{}: \"boundaries\" has other rules than {}, the ones of version {}: {}", name,
               boundaries.dump(), format_version, remedy);
  if (member(file, "specials", Json::value_t::array, name) != specials)
    base::fail("{}: \"specials\" is not {}: {}", name, specials.dump(), remedy);

  FileContent content;
  const Json& byte_costs = member(file, "bytes", Json::value_t::array, name);
  if (byte_costs.size() != 256)
    base::fail("{}: \"bytes\" has {} costs instead of 256: {}", name, byte_costs.size(), remedy);
  for (int b = 0; b < 256; ++b)
    content.byte_costs.push_back(read_cost(byte_costs[b], fmt::format("byte {}", b), name));

  const Json& items = member(file, "items", Json::value_t::array, name);
  const Json& size = member(file, "size", Json::value_t::number_unsigned, name);
  if (size != 257 + items.size() || items.size() > max_items)
    base::fail("{}: \"size\" is {}, but there are 257 + {} items: {}", name, size.dump(), items.size(), remedy);
  content.items.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Json& pair = items[i];
    Item item;
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() ||
        !unescape(pair[0].get_ref<const std::string&>(), item.bytes))
      base::fail("{}: entry {} of \"items\" is not [\"text\", cost] with the escapes \\\\ and \\xHH: {}", name, i, remedy);
    const std::string& text = pair[0].get_ref<const std::string&>();
    if (item.bytes.size() < 2 || item.bytes.size() > max_item_bytes)
      base::fail("{}: item \"{}\" has {} bytes, not 2 to {}: {}", name, text, item.bytes.size(),
                 max_item_bytes, remedy);
    item.cost = read_cost(pair[1], fmt::format("item \"{}\"", text), name);
    content.items.push_back(std::move(item));
  }
  return content;
}

}  // namespace sauropod::tokenizer

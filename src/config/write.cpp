#include "config/write.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::config {
namespace {

struct Unit {
  const char* name;
  int64_t size;
};

std::string with_unit(int64_t number, const std::vector<Unit>& units) {
  for (const Unit& unit : units)
    if (number != 0 && number % unit.size == 0)
      return fmt::format("\"{}{}\"", number / unit.size, unit.name);
  return std::to_string(number);
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<int>(byte));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Bytes as most editors count columns: UTF-8 continuation bytes take no room.
size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string toml_value(const Value& value, Kind kind) {
  if (const auto* boolean = value.get<bool>()) return *boolean ? "true" : "false";
  if (const auto* whole = value.get<int64_t>()) {
    if (kind == Kind::bytes)
      return with_unit(*whole, {{"TiB", int64_t{1} << 40},
                                {"GiB", 1 << 30},
                                {"MiB", 1 << 20},
                                {"KiB", 1 << 10},
                                {"TB", 1000000000000},
                                {"GB", 1000000000},
                                {"MB", 1000000},
                                {"kB", 1000}});
    if (kind == Kind::duration)
      return with_unit(*whole, {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}});
    return std::to_string(*whole);
  }
  if (const auto* real = value.get<double>()) {
    std::string text = fmt::format("{}", *real);  // shortest that reads back to the same double
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (const auto* text = value.get<std::string>()) return quote(*text);
  std::vector<std::string> parts;
  if (const auto* list = value.get<List>()) {
    for (const Value& element : *list) parts.push_back(toml_value(element, kind));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  for (const Entry& entry : *value.get<Table>())
    parts.push_back(fmt::format("{} = {}", entry.key, toml_value(entry.value, kind)));
  return fmt::format("{{ {} }}", fmt::join(parts, ", "));
}

std::string write_toml(const std::vector<Option>& options, const std::string& name) {
  // Sections may be declared piecemeal; each is written once, where it first appears.
  std::vector<std::string> sections;
  for (const Option& option : options)
    if (std::find(sections.begin(), sections.end(), option.section) == sections.end())
      sections.push_back(option.section);

  std::string out = "# Effective values of ";
  for (const char c : name) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  out += "; the comments say where each came from.\n";
  for (const std::string& section : sections) {
    out += fmt::format("\n[{}]\n", section);
    std::vector<std::pair<std::string, std::string>> lines;
    size_t width = 0;
    for (const Option& option : options) {
      if (option.section != section) continue;
      lines.emplace_back(fmt::format("{} = {}", option.key, toml_value(option.value, option.kind)),
                         option.origin);
      if (const size_t length = columns(lines.back().first); length <= 48)
        width = std::max(width, length);
    }
    for (const auto& [assignment, origin] : lines) {
      const size_t length = columns(assignment);
      out += assignment + std::string(length < width ? width - length : 0, ' ') + "  # ";
      for (const char c : origin) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
      out += '\n';
    }
  }
  return out;
}

nlohmann::json json_value(const Value& value) {
  if (const auto* list = value.get<List>()) {
    nlohmann::json out = nlohmann::json::array();
    for (const Value& element : *list) out.push_back(json_value(element));
    return out;
  }
  if (const auto* table = value.get<Table>()) {
    nlohmann::json out = nlohmann::json::object();
    for (const Entry& entry : *table) out[entry.key] = json_value(entry.value);
    return out;
  }
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* real = value.get<double>()) return *real;
  if (const auto* whole = value.get<int64_t>()) return *whole;
  return *value.get<bool>();
}

nlohmann::json write_json(const std::vector<Option>& options) {
  nlohmann::json out = nlohmann::json::object();
  for (const Option& option : options) {
    nlohmann::json* table = &out;
    for (size_t begin = 0; begin < option.section.size();) {
      const size_t dot = std::min(option.section.find('.', begin), option.section.size());
      table = &(*table)[option.section.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*table)[option.key] = json_value(option.value);
  }
  return out;
}

}  // namespace sauropod::config

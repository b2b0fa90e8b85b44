#include "config/toml.h"

#define TOML_ENABLE_FORMATTERS 1
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace sauropod::config {
namespace {

std::string place_of(const toml::source_region& source, std::string_view name) {
  return fmt::format("{}:{}", name, source.begin.line);
}

Table convert_table(const toml::table& table, std::string_view name);

template <class T>
std::string as_text(const T& date_or_time) {
  std::ostringstream out;
  out << date_or_time;
  return out.str();
}

Value convert(const toml::node& node, std::string_view name) {
  Value value;
  value.place = place_of(node.source(), name);
  if (const auto* table = node.as_table()) {
    value.data = convert_table(*table, name);
  } else if (const auto* array = node.as_array()) {
    List list;
    for (const toml::node& element : *array) list.push_back(convert(element, name));
    value.data = std::move(list);
  } else if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* whole = node.as_integer()) {
    value.data = whole->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.data = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else if (const auto* date = node.as_date()) {
    value.data = as_text(date->get());
  } else if (const auto* time = node.as_time()) {
    value.data = as_text(time->get());
  } else if (const auto* moment = node.as_date_time()) {
    value.data = as_text(moment->get());
  }
  return value;
}

Table convert_table(const toml::table& table, std::string_view name) {
  Table result;
  for (const auto& [key, node] : table)
    result.push_back({std::string(key.str()), convert(node, name), place_of(key.source(), name)});
  // toml++ keeps tables sorted by key; messages and output follow the file.
  std::vector<std::pair<size_t, size_t>> order;
  for (const auto& [key, node] : table)
    order.emplace_back(key.source().begin.line, key.source().begin.column);
  std::vector<size_t> index(result.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = i;
  std::stable_sort(index.begin(), index.end(),
                   [&](size_t a, size_t b) { return order[a] < order[b]; });
  Table sorted;
  for (const size_t i : index) sorted.push_back(std::move(result[i]));
  return sorted;
}

}  // namespace

const Entry* find(const Table& table, std::string_view key) {
  for (const Entry& entry : table)
    if (entry.key == key) return &entry;
  return nullptr;
}

Entry* find(Table& table, std::string_view key) {
  return const_cast<Entry*>(find(static_cast<const Table&>(table), key));
}

std::string_view kind_name(const Value& value) {
  static constexpr std::string_view kNames[] = {"true or false", "a whole number", "a number",
                                                "a string",      "a list",         "a table"};
  return kNames[value.data.index()];
}

Table parse_toml(std::string_view text, std::string_view name) {
  try {
    return convert_table(toml::parse(text, name), name);
  } catch (const toml::parse_error& error) {
    base::fail_usage("{}: {}", place_of(error.source(), name), error.description());
  }
}

std::optional<Value> parse_toml_value(std::string_view text) {
  try {
    const toml::table table = toml::parse("value = " + std::string(text));
    if (table.size() != 1) return std::nullopt;  // the text held a newline and another key
    return convert(*table.get("value"), "");
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace sauropod::config

#include "config/recipe.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "config/nearest.h"
#include "config/toml.h"
#include "config/write.h"

namespace sauropod::config {
namespace {

std::string join(const std::string& section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

void set_place(Value& value, const std::string& place) {
  value.place = place;
  if (List* list = value.get<List>())
    for (Value& element : *list) set_place(element, place);
  if (Table* table = value.get<Table>())
    for (Entry& entry : *table) {
      entry.place = place;
      set_place(entry.value, place);
    }
}

void flatten(const nlohmann::json& json, const std::string& prefix,
             std::map<std::string, std::string>& out) {
  if (!json.is_object()) {
    out[prefix] = json.dump();
    return;
  }
  for (const auto& [key, value] : json.items()) flatten(value, join(prefix, key), out);
}

}  // namespace

Recipe Recipe::load(const std::string& path, const std::vector<std::string>& sets) {
  return parse(base::read_file(path), path, sets);
}

Recipe Recipe::parse(std::string_view text, std::string name, const std::vector<std::string>& sets) {
  Recipe recipe;
  recipe.table_ = parse_toml(text, name);
  recipe.name_ = std::move(name);
  for (const std::string& assignment : sets) recipe.set(assignment);
  return recipe;
}

void Recipe::set(const std::string& text) {
  const std::string place = "--set " + text;
  const size_t equals = text.find('=');
  const std::string_view path = trim(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || path.empty())
    base::fail_usage("{}: write --set section.key=value, such as --set train.steps=100", place);

  const std::string_view raw = trim(std::string_view(text).substr(equals + 1));
  Value value;
  if (auto parsed = parse_toml_value(raw)) {
    value = std::move(*parsed);
  } else if (!raw.empty() && std::string_view("[{\"'").find(raw.front()) != std::string_view::npos) {
    base::fail_usage("{}: {} is not a TOML value; strings within lists and tables need quotes",
                     place, raw);
  } else {
    value.data = std::string(raw);  // a bare word
  }
  value.raw = raw;
  set_place(value, place);

  Table* table = &table_;
  std::string_view rest = path;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string key(trim(rest.substr(0, dot)));
    if (key.empty()) base::fail_usage("{}: {} is not a key such as train.steps", place, path);
    Entry* entry = find(*table, key);
    if (!entry) {
      table->push_back({key, {}, place});
      entry = &table->back();
      entry->value.data = Table{};
      entry->value.place = place;
    } else if (dot == std::string_view::npos && entry->value.get<Table>() &&
               !entry->value.get<Table>()->empty()) {
      base::fail_usage("{}: {} is a section; set one of its keys, such as {}.{}=…", place, path,
                       path, entry->value.get<Table>()->front().key);
    }
    if (dot == std::string_view::npos) {
      entry->value = std::move(value);
      entry->place = place;
      return;
    }
    table = entry->value.get<Table>();
    if (!table)
      base::fail_usage("{}: {} is {}, not a section; set it as a whole", place,
                       path.substr(0, path.size() - rest.size() + dot), kind_name(entry->value));
    rest.remove_prefix(dot + 1);
  }
}

void Recipe::bind_section(const std::string& name, const std::function<void(Section&)>& declare) {
  const Table* table = &table_;
  std::string around;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, dot - begin);
    around = join(around, part);
    sections_.insert(around);
    const Entry* entry = table ? find(*table, part) : nullptr;
    table = entry ? entry->value.get<Table>() : nullptr;
    if (entry && !table && around == name)
      problems_.push_back(fmt::format("{}: {} is a section: write [{}] and its keys below it",
                                      entry->value.place, name, name));
    begin = dot + 1;
  }
  for (const Option& option : options_)
    SAUROPOD_CHECK(option.section != name, "section {} is bound twice", name);
  Section section(name, table, options_, problems_);
  declare(section);
  for (const Option& option : options_) sections_.insert(option.section);
}

void Recipe::find_unknown(const Table& table, const std::string& section) {
  for (const Entry& entry : table) {
    const std::string path = join(section, entry.key);
    const bool is_option = std::any_of(options_.begin(), options_.end(), [&](const Option& option) {
      return option.section == section && option.key == entry.key;
    });
    if (is_option) continue;
    const Table* inner = entry.value.get<Table>();
    if (sections_.contains(path)) {
      if (inner) find_unknown(*inner, path);
      continue;
    }
    // Names that may stand here; then the same key elsewhere: `hidden` under [train] is model.hidden.
    std::vector<std::string> known;
    for (const Option& option : options_)
      if (option.section == section) known.push_back(option.key);
    for (const std::string& other : sections_) {
      const size_t dot = other.rfind('.');
      if ((dot == std::string::npos ? "" : other.substr(0, dot)) == section)
        known.push_back(other.substr(dot == std::string::npos ? 0 : dot + 1));
    }
    std::string message;
    if (inner && section.empty()) {
      const auto name = nearest(entry.key, known);
      message = name ? fmt::format("unknown section [{}]; did you mean [{}]?", path, *name)
                     : fmt::format("unknown section [{}]; known sections: {}", path,
                                   fmt::join(known, ", "));
    } else {
      const auto elsewhere = std::find_if(options_.begin(), options_.end(), [&](const Option& o) {
        return o.key == entry.key;
      });
      message = !nearest(entry.key, known) && elsewhere != options_.end()
                    ? fmt::format("unknown key {}; did you mean {}.{}?", path, elsewhere->section,
                                  elsewhere->key)
                    : unknown_key(section, entry.key, known);
    }
    problems_.push_back(fmt::format("{}: {}", entry.place, message));
  }
}

void Recipe::finish() {
  find_unknown(table_, "");
  for (const Option& option : options_)
    if (option.spec.required && option.origin == "default")
      problems_.push_back(fmt::format("{}: {}.{} is missing: {}", name_, option.section, option.key,
                                      option.spec.help));
  if (problems_.empty()) return;
  if (problems_.size() == 1) base::fail_usage("{}", problems_.front());
  base::fail_usage("{} problems in the recipe:\n  {}", problems_.size(),
                   fmt::join(problems_, "\n  "));
}

std::string Recipe::to_toml() const { return write_toml(options_, name_); }
nlohmann::json Recipe::to_json() const { return write_json(options_); }
std::string Recipe::hash() const { return base::hash128(to_json().dump()); }

nlohmann::json Recipe::describe() const {
  nlohmann::json origins = nlohmann::json::object();
  for (const Option& option : options_) origins[join(option.section, option.key)] = option.origin;
  return {{"values", to_json()}, {"origins", std::move(origins)}, {"hash", hash()}};
}

std::vector<Difference> Recipe::differences(const nlohmann::json& other) const {
  return config::differences(to_json(), other);
}

std::vector<Difference> differences(const nlohmann::json& here, const nlohmann::json& there) {
  std::map<std::string, std::string> mine, theirs;
  flatten(here, "", mine);
  flatten(there, "", theirs);
  std::vector<Difference> result;
  for (const auto& [key, value] : mine) {
    const auto other = theirs.find(key);
    if (other == theirs.end()) {
      result.push_back({key, value, "absent"});
    } else if (other->second != value) {
      result.push_back({key, value, other->second});
    }
  }
  for (const auto& [key, value] : theirs)
    if (!mine.contains(key)) result.push_back({key, "absent", value});
  return result;
}

}  // namespace sauropod::config

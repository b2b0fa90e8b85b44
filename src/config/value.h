// A TOML document as this room holds it: plain values that know where they were written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sauropod::config {

struct Entry;
struct Value;
using List = std::vector<Value>;
using Table = std::vector<Entry>;  // in the order of the file; keys are unique

struct Value {
  std::variant<bool, int64_t, double, std::string, List, Table> data = false;
  std::string place;  // "recipe.toml:12" or "--set train.steps=100"
  std::string raw;    // the text of a --set value; empty for values from a file

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  template <class T>
  T* get() {
    return std::get_if<T>(&data);
  }
};

struct Entry {
  std::string key;
  Value value;
  std::string place;  // of the key
};

// The entry of a key, or null.
const Entry* find(const Table& table, std::string_view key);
Entry* find(Table& table, std::string_view key);

// "a whole number", "a string", …: what a value is, for messages.
std::string_view kind_name(const Value& value);

}  // namespace sauropod::config

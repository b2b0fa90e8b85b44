// Options: each is declared once, beside the code that uses it, by a struct that lists its members to
// a Section. The member's value at that moment is the default; the declaration gives the unit, limits,
// choices and help. The same declaration reads recipes, writes effective values and the reference.
//
//   struct TrainOptions {
//     int64_t steps = 1000;
//     void declare(config::Section& section) {
//       section.option("steps", steps, {.help = "Optimizer steps", .min = 1});
//     }
//   };
//
// Described for users in docs/recipes.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace sauropod::config {

struct Spec {
  std::string help = {};                  // one or two sentences, without a full stop at the end
  std::string unit = {};                  // "tokens", "sequences"; empty for plain numbers
  std::optional<double> min = {};         // both limits belong to the range; of each element in lists
  std::optional<double> max = {};
  std::vector<std::string> choices = {};  // of a string, or of each string in a list
  bool required = false;                  // there is no default: the recipe must give it
};

enum class Kind {
  boolean, integer, real, text, texts, integers, integer_rows, bytes, duration, tables
};

// A declared option with its value. bytes and durations hold whole bytes and seconds.
struct Option {
  std::string section;  // "train"
  std::string key;      // "steps"
  Kind kind = Kind::boolean;
  Spec spec;
  Value default_value;
  Value value;
  std::string origin;           // "default", "recipe.toml:12", "--set train.steps=100"
  std::vector<Option> element;  // of Kind::tables: the options of one element
};

// One section of a recipe being read. Wrong values are noted in `problems` and leave the member as it
// was. Not for keeping: a Section lives for one call of declare().
class Section {
 public:
  // `table` may be null (nothing given). Options and problems are appended to the lists.
  Section(std::string name, const Table* table, std::vector<Option>& options,
          std::vector<std::string>& problems);

  void option(std::string_view key, bool& value, const Spec& spec);
  void option(std::string_view key, int64_t& value, const Spec& spec);
  void option(std::string_view key, int& value, const Spec& spec);
  void option(std::string_view key, double& value, const Spec& spec);
  void option(std::string_view key, std::string& value, const Spec& spec);
  // Lists also take a single element without brackets.
  void option(std::string_view key, std::vector<std::string>& value, const Spec& spec);
  void option(std::string_view key, std::vector<int64_t>& value, const Spec& spec);
  void option(std::string_view key, std::vector<std::vector<int64_t>>& value, const Spec& spec);
  // A size such as "8GB", or whole bytes. Limits are in bytes.
  void bytes(std::string_view key, int64_t& value, const Spec& spec);
  // A time such as "2h", or whole seconds. Limits are in seconds.
  void duration(std::string_view key, std::chrono::seconds& value, const Spec& spec);

  // A list of tables, each read by T::declare(Section&). When T has a static T::from_string, an
  // element may also be a bare string. A single element may stand without brackets.
  template <class T>
  void table_list(std::string_view key, std::vector<T>& values, const Spec& spec);

  // A section within this one: [train.guard].
  template <class T>
  void table(std::string_view key, T& options) {
    nested(key, [&](Section& section) { options.declare(section); });
  }

 private:
  struct Elements {  // how to fill a vector<T> without knowing T
    std::function<size_t()> size;
    std::function<void()> clear;
    std::function<void()> append;
    std::function<void()> pop_back;
    std::function<void(std::string_view)> append_string;  // empty: bare strings aren't taken
    std::function<void(size_t, Section&)> declare;
  };

  // The value given for a key, or null; notes the option either way.
  const Value* declare_option(std::string_view key, Kind kind, const Spec& spec, Value current);
  void nested(std::string_view key, const std::function<void(Section&)>& declare);
  void read_elements(std::string_view key, const Spec& spec, const Elements& elements);

  std::optional<int64_t> read_integer(const Value& value, const Spec& spec);
  std::optional<std::string> read_text(const Value& value, const Spec& spec);
  bool within(double number, const Value& value, const Spec& spec, std::string_view shown);
  void wrong_kind(const Value& value, std::string_view expected);
  void problem(const Value& value, const std::string& message);
  void accept(const Value& given, Value effective);
  // The key being read, with its section: "train.steps".
  std::string path() const;

  std::string name_;
  const Table* table_;
  std::vector<Option>& options_;
  std::vector<std::string>& problems_;
  size_t current_ = 0;  // index in options_ of the option being read
};

// "between 1 and 1000", "at least 0"; empty without limits.
std::string describe_limits(const Option& option);
// "unknown key train.stepz; did you mean train.steps?" for a key that is none of `known`.
std::string unknown_key(const std::string& section, const std::string& key,
                        const std::vector<std::string>& known);

template <class T>
void Section::table_list(std::string_view key, std::vector<T>& values, const Spec& spec) {
  Elements elements{.size = [&] { return values.size(); },
                    .clear = [&] { values.clear(); },
                    .append = [&] { values.emplace_back(); },
                    .pop_back = [&] { values.pop_back(); },
                    .append_string = {},
                    .declare = [&](size_t i, Section& section) { values[i].declare(section); }};
  if constexpr (requires(std::string_view text) { T::from_string(text); })
    elements.append_string = [&](std::string_view text) { values.push_back(T::from_string(text)); };
  read_elements(key, spec, elements);
}

}  // namespace sauropod::config

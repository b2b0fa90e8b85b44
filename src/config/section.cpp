#include "config/section.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/units.h"
#include "config/nearest.h"

namespace sauropod::config {
namespace {

constexpr double kLargestExact = 9007199254740992.0;  // 2^53

Value make(auto data) {
  Value value;
  value.data = std::move(data);
  return value;
}

template <class T>
Value make_list(const std::vector<T>& elements) {
  List list;
  for (const T& element : elements) list.push_back(make(element));
  return make(std::move(list));
}

std::string limit_text(double limit, Kind kind) {
  if (kind == Kind::bytes) return base::format_bytes(limit);
  if (kind == Kind::duration) return base::format_duration(limit);
  if (limit == std::floor(limit) && std::abs(limit) < 1e15) return fmt::format("{:.0f}", limit);
  return fmt::format("{}", limit);
}

// A single element stands for a list of one.
List as_list(const Value& value) {
  if (const List* list = value.get<List>()) return *list;
  return {value};
}

}  // namespace

std::string describe_limits(const Option& option) {
  const auto& [min, max] = std::pair(option.spec.min, option.spec.max);
  if (min && max)
    return fmt::format("between {} and {}", limit_text(*min, option.kind),
                       limit_text(*max, option.kind));
  if (min) return fmt::format("at least {}", limit_text(*min, option.kind));
  if (max) return fmt::format("at most {}", limit_text(*max, option.kind));
  return "";
}

std::string unknown_key(const std::string& section, const std::string& key,
                        const std::vector<std::string>& known) {
  const std::string prefix = section.empty() ? "" : section + ".";
  std::string message = fmt::format("unknown key {}{}", prefix, key);
  if (const auto name = nearest(key, known))
    return message + fmt::format("; did you mean {}{}?", prefix, *name);
  if (known.empty()) return message;
  return message + fmt::format("; known keys{}: {}", section.empty() ? "" : " of " + section,
                               fmt::join(known, ", "));
}

Section::Section(std::string name, const Table* table, std::vector<Option>& options,
                 std::vector<std::string>& problems)
    : name_(std::move(name)), table_(table), options_(options), problems_(problems) {}

const Value* Section::declare_option(std::string_view key, Kind kind, const Spec& spec,
                                     Value current) {
  for (const Option& option : options_)
    SAUROPOD_CHECK(option.section != name_ || option.key != key, "{}.{} is declared twice", name_,
                   key);
  Option& option = options_.emplace_back();
  current_ = options_.size() - 1;
  option.section = name_;
  option.key = key;
  option.kind = kind;
  option.spec = spec;
  option.default_value = current;
  option.value = std::move(current);
  option.origin = "default";
  const Entry* entry = table_ ? find(*table_, key) : nullptr;
  if (!entry) return nullptr;
  option.origin = entry->value.place;
  return &entry->value;
}

std::string Section::path() const {
  const Option& option = options_[current_];
  return name_.empty() ? option.key : name_ + "." + option.key;
}

void Section::problem(const Value& value, const std::string& message) {
  problems_.push_back(fmt::format("{}: {} {}", value.place, path(), message));
}

void Section::wrong_kind(const Value& value, std::string_view expected) {
  problem(value, fmt::format("must be {}, not {}", expected, kind_name(value)));
}

bool Section::within(double number, const Value& value, const Spec& spec, std::string_view shown) {
  if (!(spec.min && number < *spec.min) && !(spec.max && number > *spec.max)) return true;
  const Option& option = options_[current_];
  problem(value, fmt::format("is {}; it must be {}{}{}", shown, describe_limits(option),
                             spec.unit.empty() ? "" : " ", spec.unit));
  return false;
}

void Section::accept(const Value& given, Value effective) {
  effective.place = given.place;
  options_[current_].value = std::move(effective);
}

std::optional<int64_t> Section::read_integer(const Value& value, const Spec& spec) {
  int64_t number = 0;
  if (const auto* whole = value.get<int64_t>()) {
    number = *whole;
  } else if (const auto* real = value.get<double>();
             real && *real == std::floor(*real) && std::abs(*real) <= kLargestExact) {
    number = static_cast<int64_t>(*real);  // 1e9
  } else {
    wrong_kind(value, "a whole number");
    return std::nullopt;
  }
  if (!within(static_cast<double>(number), value, spec, std::to_string(number)))
    return std::nullopt;
  return number;
}

std::optional<std::string> Section::read_text(const Value& value, const Spec& spec) {
  const auto* text = value.get<std::string>();
  if (!text && value.raw.empty()) {
    wrong_kind(value, "a string");
    return std::nullopt;
  }
  std::string result = text ? *text : value.raw;
  if (!spec.choices.empty() &&
      std::find(spec.choices.begin(), spec.choices.end(), result) == spec.choices.end()) {
    const auto name = nearest(result, spec.choices);
    problem(value, fmt::format("is \"{}\"; it must be one of: {}{}", result,
                               fmt::join(spec.choices, ", "),
                               name ? fmt::format(" (did you mean {}?)", *name) : ""));
    return std::nullopt;
  }
  return result;
}

void Section::option(std::string_view key, bool& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::boolean, spec, make(value));
  if (!given) return;
  const bool* boolean = given->get<bool>();
  if (!boolean) return wrong_kind(*given, "true or false");
  accept(*given, make(value = *boolean));
}

void Section::option(std::string_view key, int64_t& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::integer, spec, make(value));
  if (!given) return;
  if (const auto number = read_integer(*given, spec)) accept(*given, make(value = *number));
}

void Section::option(std::string_view key, int& value, const Spec& spec) {
  Spec bounded = spec;
  if (!bounded.max) bounded.max = std::numeric_limits<int>::max();
  if (!bounded.min) bounded.min = std::numeric_limits<int>::min();
  int64_t wide = value;
  option(key, wide, bounded);
  options_[current_].spec = spec;
  value = static_cast<int>(wide);
}

void Section::option(std::string_view key, double& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::real, spec, make(value));
  if (!given) return;
  double number = 0;
  if (const auto* real = given->get<double>()) {
    number = *real;
  } else if (const auto* whole = given->get<int64_t>()) {
    number = static_cast<double>(*whole);
  } else {
    return wrong_kind(*given, "a number");
  }
  if (!std::isfinite(number)) return problem(*given, "must be a finite number");
  if (within(number, *given, spec, fmt::format("{}", number))) accept(*given, make(value = number));
}

void Section::option(std::string_view key, std::string& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::text, spec, make(value));
  if (!given) return;
  if (auto text = read_text(*given, spec)) accept(*given, make(value = std::move(*text)));
}

void Section::option(std::string_view key, std::vector<std::string>& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::texts, spec, make_list(value));
  if (!given) return;
  if (given->get<Table>()) return wrong_kind(*given, "a list of strings");
  std::vector<std::string> texts;
  for (const Value& element : as_list(*given)) {
    auto text = read_text(element, spec);
    if (!text) return;
    texts.push_back(std::move(*text));
  }
  value = std::move(texts);
  accept(*given, make_list(value));
}

void Section::option(std::string_view key, std::vector<int64_t>& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::integers, spec, make_list(value));
  if (!given) return;
  std::vector<int64_t> numbers;
  for (const Value& element : as_list(*given)) {
    const auto number = read_integer(element, spec);
    if (!number) return;
    numbers.push_back(*number);
  }
  value = std::move(numbers);
  accept(*given, make_list(value));
}

void Section::option(std::string_view key, std::vector<std::vector<int64_t>>& value,
                     const Spec& spec) {
  List current;
  for (const auto& row : value) current.push_back(make_list(row));
  const Value* given = declare_option(key, Kind::integer_rows, spec, make(std::move(current)));
  if (!given) return;
  const List* list = given->get<List>();
  if (!list) return wrong_kind(*given, "a list of lists of whole numbers");
  std::vector<std::vector<int64_t>> rows;
  List effective;
  for (const Value& row : *list) {
    const List* elements = row.get<List>();
    if (!elements) return wrong_kind(row, "a list of lists of whole numbers");
    auto& numbers = rows.emplace_back();
    for (const Value& element : *elements) {
      const auto number = read_integer(element, spec);
      if (!number) return;
      numbers.push_back(*number);
    }
    effective.push_back(make_list(numbers));
  }
  value = std::move(rows);
  accept(*given, make(std::move(effective)));
}

void Section::bytes(std::string_view key, int64_t& value, const Spec& spec) {
  const Value* given = declare_option(key, Kind::bytes, spec, make(value));
  if (!given) return;
  int64_t number = 0;
  try {
    if (const auto* text = given->get<std::string>()) {
      number = base::parse_bytes(*text, path());
    } else if (const auto* whole = given->get<int64_t>()) {
      number = *whole;
    } else {
      return wrong_kind(*given, "a size such as \"8GB\", or a number of bytes");
    }
  } catch (const base::Error& error) {
    problems_.push_back(fmt::format("{}: {}", given->place, error.what()));
    return;
  }
  const auto real = static_cast<double>(number);
  if (within(real, *given, spec, base::format_bytes(real))) accept(*given, make(value = number));
}

void Section::duration(std::string_view key, std::chrono::seconds& value, const Spec& spec) {
  const Value* given =
      declare_option(key, Kind::duration, spec, make(static_cast<int64_t>(value.count())));
  if (!given) return;
  std::chrono::seconds time{};
  try {
    if (const auto* text = given->get<std::string>()) {
      time = base::parse_duration(*text, path());
    } else if (const auto* whole = given->get<int64_t>()) {
      time = std::chrono::seconds(*whole);
    } else {
      return wrong_kind(*given, "a time such as \"2h\", or whole seconds");
    }
  } catch (const base::Error& error) {
    problems_.push_back(fmt::format("{}: {}", given->place, error.what()));
    return;
  }
  const auto real = static_cast<double>(time.count());
  if (!within(real, *given, spec, base::format_duration(real))) return;
  value = time;
  accept(*given, make(static_cast<int64_t>(time.count())));
}

void Section::nested(std::string_view key, const std::function<void(Section&)>& declare) {
  const Entry* entry = table_ ? find(*table_, key) : nullptr;
  const Table* table = entry ? entry->value.get<Table>() : nullptr;
  const std::string name = name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
  if (entry && !table)
    problems_.push_back(fmt::format("{}: {} is a section: write [{}] and its keys below it",
                                    entry->value.place, name, name));
  Section section(name, table, options_, problems_);
  declare(section);
}

void Section::read_elements(std::string_view key, const Spec& spec, const Elements& elements) {
  // One element as a table of effective values; reads `given` when there is one.
  const auto element = [&](size_t index, const Table* given, std::vector<Option>& options) {
    const std::string name =
        fmt::format("{}{}{}[{}]", name_, name_.empty() ? "" : ".", key, index);
    Section section(name, given, options, problems_);
    elements.declare(index, section);
    if (given) {
      std::vector<std::string> known;
      for (const Option& option : options) known.push_back(option.key);
      for (const Entry& entry : *given)
        if (std::find(known.begin(), known.end(), entry.key) == known.end())
          problems_.push_back(
              fmt::format("{}: {}", entry.place, unknown_key(name, entry.key, known)));
      for (const Option& option : options)
        if (option.spec.required && option.origin == "default")
          problems_.push_back(fmt::format("{}: {}.{} is missing: {}",
                                          given->empty() ? name : given->front().place, name,
                                          option.key, option.spec.help));
    }
    Table table;
    for (const Option& option : options) {
      SAUROPOD_CHECK(option.section == name, "{}: sections within list elements", name);
      table.push_back({option.key, option.value, ""});
    }
    return make(std::move(table));
  };
  const auto all = [&] {
    List list;
    for (size_t i = 0; i < elements.size(); ++i) {
      std::vector<Option> options;
      list.push_back(element(i, nullptr, options));
    }
    return make(std::move(list));
  };

  const Value* given = declare_option(key, Kind::tables, spec, all());
  const size_t own = current_;
  {
    // What an element may hold, for the reference: declared by a fresh element that is then removed.
    std::vector<Option> options;
    elements.append();
    element(elements.size() - 1, nullptr, options);
    options_[own].element = std::move(options);
    elements.pop_back();
  }
  if (!given) return;
  elements.clear();
  List effective;
  for (const Value& item : as_list(*given)) {
    std::vector<Option> options;
    if (const Table* table = item.get<Table>()) {
      elements.append();
      effective.push_back(element(elements.size() - 1, table, options));
    } else if (const auto* text = item.get<std::string>(); text && elements.append_string) {
      elements.append_string(*text);
      effective.push_back(element(elements.size() - 1, nullptr, options));
    } else {
      wrong_kind(item, elements.append_string ? "a table or a string" : "a table");
    }
  }
  accept(*given, make(std::move(effective)));
}

}  // namespace sauropod::config

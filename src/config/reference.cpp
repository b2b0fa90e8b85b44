#include "config/reference.h"

#include <algorithm>

#include "base/error.h"
#include "config/environment.h"
#include "config/write.h"

namespace sauropod::config {
namespace {

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return "whole number";
    case Kind::real: return "number";
    case Kind::text: return "string";
    case Kind::texts: return "list of strings";
    case Kind::integers: return "list of whole numbers";
    case Kind::integer_rows: return "list of lists of whole numbers";
    case Kind::bytes: return "size, such as \"8GB\"";
    case Kind::duration: return "time, such as \"2h\"";
    case Kind::tables: return "list of tables";
  }
  return "";
}

// Text that may stand in a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void row(std::string& out, const Option& option, const std::string& prefix) {
  std::string type(type_name(option.kind));
  if (!option.spec.choices.empty())
    type = fmt::format("`{}`", fmt::join(option.spec.choices, "`, `"));
  std::string range = describe_limits(option);
  if (!option.spec.unit.empty()) range += (range.empty() ? "" : " ") + option.spec.unit;
  const std::string standard =
      option.spec.required ? "required"
                           : fmt::format("`{}`", toml_value(option.default_value, option.kind));
  out += fmt::format("| `{}{}` | {} | {} | {} | {} |\n", prefix, option.key, cell(type),
                     cell(standard), cell(range), cell(option.spec.help));
  for (const Option& field : option.element) row(out, field, prefix + option.key + "[].");
}

}  // namespace

std::string write_reference(const std::vector<Option>& options) {
  std::string out =
      "# Options\n\n"
      "Written by `sauropod config show --reference` from the declarations in the source; how "
      "recipes work is in [recipes.md](recipes.md).\n";
  std::vector<std::string> sections;
  for (const Option& option : options)
    if (std::find(sections.begin(), sections.end(), option.section) == sections.end())
      sections.push_back(option.section);
  for (const std::string& section : sections) {
    out += fmt::format("\n## [{}]\n\n| key | type | default | range and unit | meaning |\n"
                       "|---|---|---|---|---|\n",
                       section);
    for (const Option& option : options)
      if (option.section == section) row(out, option, "");
  }
  out += "\n## Environment variables\n\n| variable | default | meaning |\n|---|---|---|\n";
  for (const EnvironmentVariable& variable : environment_variables())
    out += fmt::format("| `{}` | {} | {} |\n", variable.name, cell(variable.standard),
                       cell(variable.help));
  return out;
}

}  // namespace sauropod::config

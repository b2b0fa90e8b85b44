// Effective values as TOML and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/section.h"

namespace sauropod::config {

// TOML with one section after the other, in the order of declaration; a comment on each line says
// where its value came from. `name` is the recipe's, for the first line.
std::string write_toml(const std::vector<Option>& options, const std::string& name);

// One value as it stands in TOML: sizes and durations with the largest unit that keeps them exact.
std::string toml_value(const Value& value, Kind kind);

// {"train": {"steps": 100, "guard": {…}}, …}
nlohmann::json write_json(const std::vector<Option>& options);

nlohmann::json json_value(const Value& value);

}  // namespace sauropod::config

// Reading TOML 1.0 (by toml++) into config::Value. Dates and times become strings.
#pragma once

#include <optional>
#include <string_view>

#include "config/value.h"

namespace sauropod::config {

// `name` is what messages call the text: its path. Throws base::Error (usage) with name:line for text
// that isn't TOML, duplicate keys included.
Table parse_toml(std::string_view text, std::string_view name);

// One value as it may stand to the right of `key =`, or nothing when it isn't one. Places are empty.
std::optional<Value> parse_toml_value(std::string_view text);

}  // namespace sauropod::config

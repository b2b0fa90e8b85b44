// The reference of options and environment variables, written from their declarations.
#pragma once

#include <string>
#include <vector>

#include "config/section.h"

namespace sauropod::config {

// Markdown: one heading and table per section. The options of a recipe without values: their defaults
// are what is printed.
std::string write_reference(const std::vector<Option>& options);

}  // namespace sauropod::config

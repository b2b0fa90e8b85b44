// The known name that a misspelt one was probably meant to be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sauropod::config {

// Edits (insert, delete, replace a byte, swap two neighbours) between the two: the Damerau–Levenshtein
// distance in its optimal string alignment form.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the fewest edits, the first of equals; nothing when none is close enough (more
// than a third of the name's length, and more than one edit).
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

}  // namespace sauropod::config

// One string field out of a JSON object (RFC 8259), for JSON-lines text: the whole line is checked,
// nothing but the wanted field is stored, and bytes that are not valid UTF-8 are kept as they are
// (general JSON readers refuse them).
#pragma once

#include <string>
#include <string_view>

namespace sauropod::formats {

// Replaces `text` by the value of the top-level `field` of the object in `line`. Returns an empty
// string, or what is wrong with the line ("is not an object", …), to be put behind "file:line: ".
// When a key is repeated the last one counts. A \u escape that is half of a surrogate pair becomes
// the three bytes of its number, as UTF-8 would write it.
std::string read_json_field(std::string_view line, std::string_view field, std::string& text);

}  // namespace sauropod::formats

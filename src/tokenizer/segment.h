// Cutting text into segments at hard boundaries, described in docs/tokenizer.md ("Hard boundaries").
//
// No item of a vocabulary spans a boundary, so each segment is encoded by itself: encoding is a map
// over segments, and text can be encoded piece by piece as long as the pieces meet at boundaries.
//
// Segments of a text are, from left to right:
//   - a run of newlines (0x0A), as long as possible;
//   - one `,`, `(` or `)`;
//   - one `.` that ends a sentence: the two bytes before it are lower-case ASCII letters, and a space,
//     a carriage return, a newline or the end of the text follows;
//   - anything else, up to the next of these.
// The rule for `.` looks only at bytes of the segment before it, since letters are no boundaries.
#pragma once

#include <cstddef>
#include <string_view>

namespace sauropod::tokenizer {

// Whether text[at], a '.', is a boundary. `begin` is where the segment that holds it begins.
bool ends_sentence(std::string_view text, size_t begin, size_t at);

// The end of the segment that begins at `begin` < text.size().
size_t segment_end(std::string_view text, size_t begin);

// The same for a text whose end has not been seen yet: the end of the segment if no further byte can
// move it, otherwise npos. `scanned` is where to go on looking for a boundary: 0 for a new segment;
// it is moved forward, so that repeated calls on a growing text take linear time together.
size_t settled_segment_end(std::string_view text, size_t begin, size_t& scanned);

}  // namespace sauropod::tokenizer

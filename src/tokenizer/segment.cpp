#include "tokenizer/segment.h"

#include <array>

namespace sauropod::tokenizer {
namespace {

enum Kind : unsigned char { plain, newline, alone, dot };

constexpr std::array<Kind, 256> make_kinds() {
  std::array<Kind, 256> kinds{};
  kinds['\n'] = newline;
  kinds[','] = kinds['('] = kinds[')'] = alone;
  kinds['.'] = dot;
  return kinds;
}
constexpr std::array<Kind, 256> kinds = make_kinds();

Kind kind_of(char byte) { return kinds[static_cast<unsigned char>(byte)]; }
bool lower(char byte) { return byte >= 'a' && byte <= 'z'; }

size_t newline_run(std::string_view text, size_t at) {
  while (at < text.size() && text[at] == '\n') ++at;
  return at;
}

}  // namespace

bool ends_sentence(std::string_view text, size_t begin, size_t at) {
  if (at < begin + 2 || !lower(text[at - 1]) || !lower(text[at - 2])) return false;
  if (at + 1 == text.size()) return true;
  const char next = text[at + 1];
  return next == ' ' || next == '\n' || next == '\r';
}

size_t segment_end(std::string_view text, size_t begin) {
  const Kind first = kind_of(text[begin]);
  if (first == newline) return newline_run(text, begin);
  if (first == alone) return begin + 1;
  // A segment begins with '.' either because that dot ends a sentence, and then it is alone, or
  // because the text or a boundary came before it. Only the first has a letter before it.
  if (first == dot && begin >= 2 && ends_sentence(text, begin - 2, begin)) return begin + 1;
  size_t at = begin + 1;
  for (; at < text.size(); ++at) {
    const Kind kind = kind_of(text[at]);
    if (kind == plain) continue;
    if (kind != dot || ends_sentence(text, begin, at)) break;
  }
  return at;
}

size_t settled_segment_end(std::string_view text, size_t begin, size_t& scanned) {
  if (scanned < begin) scanned = begin;
  if (begin >= text.size()) return std::string_view::npos;
  const Kind first = kind_of(text[begin]);
  if (first == alone) return begin + 1;
  if (first == newline) {
    scanned = newline_run(text, scanned);
    return scanned < text.size() ? scanned : std::string_view::npos;
  }
  if (first == dot && begin >= 2 && begin + 1 < text.size() &&
      ends_sentence(text, begin - 2, begin))
    return begin + 1;
  if (scanned == begin) ++scanned;
  for (; scanned < text.size(); ++scanned) {
    const Kind kind = kind_of(text[scanned]);
    if (kind == plain) continue;
    if (kind != dot) return scanned;
    // What follows the last dot is not known yet.
    if (scanned + 1 == text.size()) return std::string_view::npos;
    if (ends_sentence(text, begin, scanned)) return scanned;
  }
  return std::string_view::npos;
}

}  // namespace sauropod::tokenizer

#include "tokenizer/chunks.h"

#include <algorithm>

#include "tokenizer/segment.h"
#include "tokenizer/utf8.h"

namespace sauropod::tokenizer {
namespace {

enum class Class { space, tab, control, letter, digit, underscore, joiner, other };

struct Character {
  Class kind = Class::other;
  size_t length = 1;
};

// Symbols outside ASCII that are no part of words: Latin-1 signs, general punctuation (but for the
// hyphens and the apostrophe), arrows to dingbats, CJK punctuation, full-width forms of ASCII signs,
// private use, emoji.
bool is_symbol(uint32_t c) {
  if (c == 0x2019 || c == 0x2010 || c == 0x2011 || c == 0xAA || c == 0xBA) return false;
  return (c >= 0x80 && c <= 0xBF) || c == 0xD7 || c == 0xF7 || (c >= 0x2000 && c <= 0x206F) ||
         (c >= 0x20A0 && c <= 0x20CF) || (c >= 0x2190 && c <= 0x2BFF) ||
         (c >= 0x3000 && c <= 0x303F) || (c >= 0xE000 && c <= 0xF8FF) ||
         (c >= 0xFE00 && c <= 0xFE6F) || c == 0xFEFF || (c >= 0xFF00 && c <= 0xFF20) ||
         c >= 0x1F000;
}

Character classify(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == ' ') return {Class::space};
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return {Class::letter};
  if (c >= '0' && c <= '9') return {Class::digit};
  if (c == '_') return {Class::underscore};
  if (c == '\'' || c == '-' || c == '.' || c == '&') return {Class::joiner};
  if (c == '\t') return {Class::tab};
  const CodePoint point = decode_utf8(text, at);
  if (point.length == 0 || point.value < 0x20 || point.value == 0x7F) return {Class::control};
  const auto length = static_cast<size_t>(point.length);
  if (point.value == 0x2019 || point.value == 0x2010 || point.value == 0x2011)
    return {Class::joiner, length};
  return {point.length > 1 && !is_symbol(point.value) ? Class::letter : Class::other, length};
}

size_t run_end(std::string_view text, size_t at, char c) {
  while (at < text.size() && text[at] == c) ++at;
  return at;
}

bool inside(Class kind) {
  return kind == Class::letter || kind == Class::digit || kind == Class::underscore;
}

struct Word {
  size_t end = 0;
  bool identifier = false;  // has an underscore
};

// The longest stretch of letters, digits, underscores and single joiners between them. A final dot
// belongs to it after one or two letters ("U.S.", "Dr.", "e.g."), unless it ends a sentence.
Word word_at(std::string_view text, size_t begin) {
  Word word{begin};
  size_t letters = 0;  // before `at`
  for (size_t at = begin; at < text.size();) {
    const Character c = classify(text, at);
    if (inside(c.kind)) {
      word.identifier |= c.kind == Class::underscore;
      letters = c.kind == Class::letter ? letters + 1 : 0;
      at += c.length;
      word.end = at;
    } else if (c.kind == Class::joiner && at > begin) {
      const size_t next = at + c.length;
      const bool joins = next < text.size() && inside(classify(text, next).kind);
      if (!joins) {
        if (text[at] == '.' && (letters == 1 || letters == 2) && next < text.size() &&
            text[next] == ' ' && !ends_sentence(text, 0, at))
          word.end = next;
        break;
      }
      letters = 0;
      at = next;
    } else {
      break;
    }
  }
  return word;
}

// Appends [begin, end), cut at character boundaries into chunks of at most max_chunk_bytes.
void append(std::string_view text, size_t begin, size_t end, ChunkKind kind,
            std::vector<Chunk>& out) {
  while (end - begin > max_chunk_bytes) {
    size_t cut = begin + max_chunk_bytes;
    for (int back = 0; back < 3 && (text[cut] & 0xC0) == 0x80; ++back) --cut;
    out.push_back({text.substr(begin, cut - begin), ChunkKind::other});
    begin = cut;
    kind = ChunkKind::other;
  }
  if (begin < end) out.push_back({text.substr(begin, end - begin), kind});
}

}  // namespace

void cut_chunks(std::string_view segment, std::vector<Chunk>& out) {
  for (size_t at = 0; at < segment.size();) {
    const Character first = classify(segment, at);
    if (segment[at] == '\n' || first.kind == Class::tab) {
      const size_t end = run_end(segment, at, segment[at]);
      append(segment, at, end, ChunkKind::other, out);
      at = end;
      continue;
    }
    if (first.kind == Class::control) {
      append(segment, at, at + 1, ChunkKind::other, out);
      ++at;
      continue;
    }
    // The last space of a run leads what follows it, unless that is a tab, a control byte or the end.
    size_t begin = at;
    if (first.kind == Class::space) {
      const size_t end = run_end(segment, at, ' ');
      bool leads = false;
      if (end < segment.size()) {
        const Class next = classify(segment, end).kind;
        leads = next != Class::tab && next != Class::control;
      }
      begin = leads ? end - 1 : end;
      append(segment, at, begin, ChunkKind::other, out);
      at = end;
      if (!leads) continue;
    }
    const Class lead = classify(segment, at).kind;
    if (inside(lead)) {
      const Word word = word_at(segment, at);
      ChunkKind kind = ChunkKind::other;
      if (begin < at && !word.identifier && word.end - begin <= max_word_bytes)
        kind = lead == Class::letter ? ChunkKind::word : ChunkKind::number;
      append(segment, begin, word.end, kind, out);
      begin = at = word.end;
    }
    // What is attached to the word, or a stretch that begins with a sign.
    while (at < segment.size()) {
      const Character c = classify(segment, at);
      if (c.kind == Class::space || c.kind == Class::tab || c.kind == Class::control) break;
      at += c.length;
    }
    append(segment, begin, at, ChunkKind::other, out);
  }
}

}  // namespace sauropod::tokenizer

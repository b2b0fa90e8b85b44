#include "tokenizer/stream.h"

#include <algorithm>
#include <utility>

#include "tokenizer/segment.h"
#include "tokenizer/utf8.h"

namespace sauropod::tokenizer {
namespace {

// The length of an incomplete character at the end of the text: bytes that further bytes can complete.
size_t open_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    if (byte < 0xC2 || byte > 0xF4) return 0;
    const size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    if (back >= length) return 0;
    // Some completion must be valid: the second byte's range depends on the first.
    std::string whole(text.substr(text.size() - back));
    if (whole.size() == 1) return back;
    whole.resize(length, '\x80');
    return decode_utf8(whole, 0).length > 0 ? back : 0;
  }
  return 0;
}

}  // namespace

void StreamEncoder::feed(std::string_view text, std::vector<int32_t>& append_to) {
  held_ += text;
  for (;;) {
    const size_t end = settled_segment_end(held_, begin_, scanned_);
    if (end == std::string::npos) break;
    tokenizer_.encode_segment(std::string_view(held_).substr(begin_, end - begin_), append_to);
    begin_ = scanned_ = end;
    cut_at_ = first_cut;
  }
  if (held_.size() - begin_ >= cut_at_) {
    const size_t cut = tokenizer_.safe_cut(std::string_view(held_).substr(begin_));
    if (cut > 0)
      tokenizer_.encode_segment(std::string_view(held_).substr(begin_, cut), append_to);
    begin_ += cut;
    cut_at_ = std::max(first_cut, 2 * (held_.size() - begin_));
  }
  drop_settled();
}

void StreamEncoder::finish(std::vector<int32_t>& append_to) {
  while (begin_ < held_.size()) {
    const size_t end = segment_end(held_, begin_);
    tokenizer_.encode_segment(std::string_view(held_).substr(begin_, end - begin_), append_to);
    begin_ = end;
  }
  held_.clear();
  begin_ = scanned_ = 0;
  cut_at_ = first_cut;
}

void StreamEncoder::drop_settled() {
  const size_t drop = begin_ - std::min<size_t>(begin_, 2);
  held_.erase(0, drop);
  begin_ -= drop;
  scanned_ -= std::min(scanned_, drop);
}

std::string StreamDecoder::feed(int32_t id) {
  held_ += tokenizer_.bytes_of(id);
  const size_t open = open_character(held_);
  std::string given = held_.substr(0, held_.size() - open);
  held_.erase(0, given.size());
  return given;
}

std::string StreamDecoder::finish() { return std::exchange(held_, {}); }

}  // namespace sauropod::tokenizer

// Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sauropod::tokenizer {

struct CodePoint {
  uint32_t value = 0;
  int length = 0;  // bytes; 0 when the text isn't well formed there
};

inline CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, at < text.size() ? 1 : 0};
  if (lead >= 0xC2 && lead <= 0xDF && tail(1)) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if ((lead & 0xF0) == 0xE0 && tail(1) && tail(2)) {
    const uint32_t value = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && tail(1) && tail(2) && tail(3)) {
    const uint32_t value = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                           (byte(3) & 0x3F);
    if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4};
  }
  return {};
}

}  // namespace sauropod::tokenizer

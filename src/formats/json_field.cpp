#include "formats/json_field.h"

#include <fmt/format.h>

#include <cstdint>

namespace sauropod::formats {
namespace {

constexpr int kDepth = 512;

struct Complaint {
  std::string text;
};

void append_code_point(std::string& out, uint32_t point) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

class Scanner {
 public:
  explicit Scanner(std::string_view line)
      : begin_(line.data()), at_(begin_), end_(begin_ + line.size()) {}

  std::string find(std::string_view field, std::string& text) {
    skip_space();
    if (at_ == end_ || *at_ != '{') {
      value(nullptr, 0);  // a line that is no JSON at all gets the more telling message
      finish();
      return "is not a JSON object";
    }
    ++at_;
    std::string found;
    std::string key;
    members('}', [&] {
      key.clear();
      string(&key);
      skip_space();
      expect(':');
      skip_space();
      if (key != field) return value(nullptr, 1);
      if (at_ < end_ && *at_ == '"') {
        found = "string";
        text.clear();
        return string(&text);
      }
      found = kind();
      value(nullptr, 1);
    });
    finish();
    if (found.empty()) return fmt::format("has no field '{}'", field);
    if (found != "string") return fmt::format("has {} in field '{}', not a string", found, field);
    return {};
  }

 private:
  [[noreturn]] void complain(std::string_view what) const {
    throw Complaint{fmt::format("is not valid JSON: {} at byte {}", what, at_ - begin_ + 1)};
  }
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  void expect(char wanted) {
    if (at_ == end_ || *at_ != wanted) complain(fmt::format("'{}' is missing", wanted));
    ++at_;
  }
  void finish() {
    skip_space();
    if (at_ != end_) complain("more text after the value");
  }
  const char* kind() const {
    switch (at_ < end_ ? *at_ : '\0') {
      case '{':
        return "an object";
      case '[':
        return "a list";
      case 'n':
        return "null";
      case 't':
      case 'f':
        return "true or false";
      default:
        return "a number";
    }
  }

  // Members of an object or list up to `close`; each begins at `member`.
  template <typename Member>
  void members(char close, const Member& member) {
    skip_space();
    if (at_ < end_ && *at_ == close) {
      ++at_;
      return;
    }
    while (true) {
      skip_space();
      member();
      skip_space();
      if (at_ < end_ && *at_ == ',') {
        ++at_;
        continue;
      }
      expect(close);
      return;
    }
  }

  void value(std::string* out, int depth) {
    if (at_ == end_) complain("the text ends early");
    if (depth > kDepth) complain("values are nested too deeply");
    switch (*at_) {
      case '{':
        ++at_;
        return members('}', [&] {
          string(nullptr);
          skip_space();
          expect(':');
          skip_space();
          value(nullptr, depth + 1);
        });
      case '[':
        ++at_;
        return members(']', [&] { value(nullptr, depth + 1); });
      case '"':
        return string(out);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  void word(std::string_view wanted) {
    if (std::string_view(at_, static_cast<size_t>(end_ - at_)).substr(0, wanted.size()) != wanted)
      complain("unexpected text");
    at_ += wanted.size();
  }

  bool digits() {
    const char* first = at_;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ > first;
  }

  void number() {
    if (at_ < end_ && *at_ == '-') ++at_;
    if (at_ < end_ && *at_ == '0') {
      ++at_;
    } else if (!digits()) {
      complain("unexpected text");
    }
    if (at_ < end_ && *at_ == '.') {
      ++at_;
      if (!digits()) complain("a number ends early");
    }
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!digits()) complain("a number ends early");
    }
  }

  uint32_t hex4() {
    uint32_t number = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == end_) complain("the text ends inside a string");
      const char c = *at_;
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      } else {
        complain("a \\u escape without four hexadecimal digits");
      }
      number = number << 4 | digit;
    }
    return number;
  }

  void escape(std::string& out) {
    if (at_ == end_) complain("the text ends inside a string");
    const char c = *at_++;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        return out.push_back(c);
      case 'b':
        return out.push_back('\b');
      case 'f':
        return out.push_back('\f');
      case 'n':
        return out.push_back('\n');
      case 'r':
        return out.push_back('\r');
      case 't':
        return out.push_back('\t');
      case 'u': {
        uint32_t point = hex4();
        if (point >= 0xD800 && point < 0xDC00 && end_ - at_ >= 6 && at_[0] == '\\' &&
            at_[1] == 'u') {
          const char* second = at_;
          at_ += 2;
          const uint32_t low = hex4();
          if (low >= 0xDC00 && low < 0xE000) {
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
          } else {
            at_ = second;
          }
        }
        return append_code_point(out, point);
      }
      default:
        --at_;
        complain("an unknown escape");
    }
  }

  // `out` may be null: the string is checked and left.
  void string(std::string* out) {
    expect('"');
    std::string ignored;
    while (true) {
      const char* run = at_;
      while (at_ < end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20)
        ++at_;
      if (out != nullptr) out->append(run, at_);
      if (at_ == end_) complain("the text ends inside a string");
      if (*at_ == '"') {
        ++at_;
        return;
      }
      if (*at_ != '\\') complain("an unescaped control character in a string");
      ++at_;
      ignored.clear();
      escape(out != nullptr ? *out : ignored);
    }
  }

  const char* begin_;
  const char* at_;
  const char* end_;
};

}  // namespace

std::string read_json_field(std::string_view line, std::string_view field, std::string& text) {
  try {
    return Scanner(line).find(field, text);
  } catch (Complaint& complaint) {
    return std::move(complaint.text);
  }
}

}  // namespace sauropod::formats

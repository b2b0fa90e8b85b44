// Encoding and decoding text that arrives piece by piece, with the results of doing it at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace sauropod::tokenizer {

// Holds back the last segment until its end is certain. A segment that grows long is given out up to a
// place that no item can reach across (Tokenizer::safe_cut), so memory is bounded for all text but
// such that has no such place. Not thread-safe; the tokenizer must outlive it.
class StreamEncoder {
 public:
  explicit StreamEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void feed(std::string_view text, std::vector<int32_t>& append_to);
  // The end of the text; then the next one may begin.
  void finish(std::vector<int32_t>& append_to);
  size_t held_bytes() const { return held_.size() - begin_; }

 private:
  void drop_settled();

  const Tokenizer& tokenizer_;
  std::string held_;    // the open segment, behind two bytes that its first dot may look back at
  size_t begin_ = 0;    // of the open segment
  size_t scanned_ = 0;  // no boundary up to here
  size_t cut_at_ = first_cut;
  static constexpr size_t first_cut = size_t{1} << 16;
};

// Holds back the beginning of a character until the rest of it arrives, so that what is given out can
// be shown. Bytes that are no valid UTF-8 are passed on as they are.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string feed(int32_t id);
  // What was held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace sauropod::tokenizer

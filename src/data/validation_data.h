// Held-out text for evaluation: every document once, in file order, in windows of one context, with
// the number of text bytes that each window predicts (so that bits per byte are exact).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace sauropod::data {

// Thread-safe.
class ValidationData {
 public:
  // `item_bytes[id]` is the number of text bytes of an item (special items: 0); its size is the
  // vocabulary. Throws as open_corpus does, and for data without tokens.
  ValidationData(const std::filesystem::path& prefix, int64_t context,
                 std::vector<int32_t> item_bytes, int32_t end_of_document);

  struct Window {
    int64_t targets;  // tokens predicted: context, fewer in the last window
    int64_t bytes;    // text bytes that these tokens stand for
  };
  int64_t context() const { return context_; }
  int64_t windows() const { return windows_; }
  int64_t tokens() const { return static_cast<int64_t>(corpus_.dataset->tokens()); }

  // Fills `out` (context + 1) with window `index`: the input of its first target, then the targets;
  // the rest is filled with the end-of-document item. The very first target is predicted from an
  // end-of-document item. Over all windows every token is a target exactly once.
  Window window(int64_t index, std::span<int32_t> out) const;

  // `count` windows spread evenly over the data, ascending; all of them when there are no more.
  std::vector<int64_t> spread(int64_t count) const;

  const Corpus& corpus() const { return corpus_; }

 private:
  Corpus corpus_;
  int64_t context_;
  int64_t windows_;
  std::vector<int32_t> item_bytes_;
  int32_t end_of_document_;
};

}  // namespace sauropod::data

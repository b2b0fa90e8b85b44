#include "tokenizer/inspect.h"

#include <algorithm>

namespace sauropod::tokenizer {
namespace {

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    words += !space && !inside;
    inside = !space;
  }
  return words;
}

}  // namespace

Inspector::Inspector(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), counts_(static_cast<size_t>(tokenizer.size()), 0) {}

void Inspector::add(std::string_view document) {
  ++result_.documents;
  result_.bytes += static_cast<int64_t>(document.size());
  result_.words += count_words(document);
  ids_.clear();
  tokenizer_.encode(document, ids_);
  result_.tokens += static_cast<int64_t>(ids_.size());
  for (const int32_t id : ids_) ++counts_[id];
}

Inspection Inspector::finish(size_t top) {
  result_.size = tokenizer_.size();
  const bool any_text = result_.tokens > 0;
  std::vector<ItemUse> items;
  for (int32_t id = 0; id < tokenizer_.size(); ++id) {
    const int words = word_count(tokenizer_.bytes_of(id));
    result_.used += counts_[id] > 0;
    result_.by_words[std::min(words, 4)] += counts_[id];
    if (words < 2) continue;
    ++result_.multi_word;
    if (counts_[id] > 0 || !any_text) items.push_back({id, counts_[id]});
  }
  const auto first = [&](auto before) {
    std::vector<ItemUse> list = items;
    std::stable_sort(list.begin(), list.end(), before);
    list.resize(std::min(list.size(), top));
    return list;
  };
  // Ids ascend with falling probability, which decides among equals.
  result_.most_used = first([](const ItemUse& a, const ItemUse& b) { return a.count > b.count; });
  result_.longest = first([&](const ItemUse& a, const ItemUse& b) {
    return tokenizer_.bytes_of(a.id).size() > tokenizer_.bytes_of(b.id).size();
  });
  return std::move(result_);
}

}  // namespace sauropod::tokenizer

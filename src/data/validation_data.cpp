#include "data/validation_data.h"

#include <algorithm>

#include "base/error.h"

namespace sauropod::data {

ValidationData::ValidationData(const std::filesystem::path& prefix, int64_t context,
                               std::vector<int32_t> item_bytes, int32_t end_of_document)
    : corpus_(open_corpus(prefix)),
      context_(context),
      item_bytes_(std::move(item_bytes)),
      end_of_document_(end_of_document) {
  SAUROPOD_CHECK(context > 0 && !item_bytes_.empty());
  if (tokens() == 0)
    base::fail_usage("{}.bin holds no tokens: there is nothing to evaluate", prefix.string());
  windows_ = (tokens() - 1) / context_ + 1;
}

ValidationData::Window ValidationData::window(int64_t index, std::span<int32_t> out) const {
  SAUROPOD_CHECK(index >= 0 && index < windows_);
  SAUROPOD_CHECK(out.size() == static_cast<size_t>(context_) + 1);
  const int64_t first = index * context_;
  const int64_t targets = std::min(context_, tokens() - first);
  // Window 0 has nothing before its first target in the file.
  const size_t missing = index == 0 ? 1 : 0;
  const auto filled = out.first(static_cast<size_t>(targets) + 1);
  if (missing == 1) out[0] = end_of_document_;
  corpus_.dataset->read(static_cast<uint64_t>(first) + missing - 1, filled.subspan(missing),
                        static_cast<int64_t>(item_bytes_.size()));
  std::fill(out.begin() + targets + 1, out.end(), end_of_document_);
  int64_t bytes = 0;
  for (const int32_t id : filled.subspan(1)) bytes += item_bytes_[static_cast<size_t>(id)];
  return {targets, bytes};
}

std::vector<int64_t> ValidationData::spread(int64_t count) const {
  SAUROPOD_CHECK(count > 0);
  count = std::min(count, windows_);
  std::vector<int64_t> chosen;
  // floor(i windows / count), in parts that do not overflow.
  for (int64_t i = 0; i < count; ++i)
    chosen.push_back(windows_ / count * i + windows_ % count * i / count);
  return chosen;
}

}  // namespace sauropod::data

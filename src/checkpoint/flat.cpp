#include "checkpoint/flat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"

namespace sauropod::checkpoint {
namespace {

// The elements [begin, end) of a region whose dimensions before `d` have one element.
void append_boxes(const Region& region, size_t d, int64_t begin, int64_t end,
                  std::vector<Region>& boxes) {
  if (begin == end) return;
  if (end - begin == region.elements()) return boxes.push_back(region);
  const int64_t row = region.elements() / region.shape[d];
  const auto rows = [&](int64_t first, int64_t count) {
    Region part = region;
    part.offset[d] += first;
    part.shape[d] = count;
    return part;
  };
  const int64_t first = begin / row, last = end / row;  // the rows that are cut, if they are
  if (first == last)
    return append_boxes(rows(first, 1), d + 1, begin - first * row, end - first * row, boxes);
  int64_t whole = first;
  if (begin != first * row) {
    append_boxes(rows(first, 1), d + 1, begin - first * row, row, boxes);
    ++whole;
  }
  if (whole < last) boxes.push_back(rows(whole, last - whole));
  if (end != last * row) append_boxes(rows(last, 1), d + 1, 0, end - last * row, boxes);
}

// Calls each(entry, box, position of its first element in the flat buffer) for what the range holds.
void for_each_box(const std::vector<FlatEntry>& layout, ElementRange range,
                  const std::function<void(const FlatEntry&, const Region&, int64_t)>& each) {
  for (const FlatEntry& entry : layout) {
    const int64_t size = entry.slice.region.elements();
    const int64_t begin = std::clamp<int64_t>(range.begin - entry.begin, 0, size);
    const int64_t end = std::clamp<int64_t>(range.end - entry.begin, begin, size);
    int64_t position = entry.begin + begin;
    for (const Region& box : boxes_of(entry.slice, {begin, end})) {
      each(entry, box, position);
      position += box.elements();
    }
  }
}

}  // namespace

ElementRange share_of(int64_t elements, int64_t replica, int64_t replicas) {
  SAUROPOD_CHECK(elements >= 0 && replica >= 0 && replica < replicas);
  const int64_t each = elements / replicas, longer = elements % replicas;
  const int64_t begin = replica * each + std::min(replica, longer);
  return {begin, begin + each + (replica < longer ? 1 : 0)};
}

std::vector<Region> boxes_of(const Slice& slice, ElementRange range) {
  const auto& [full, region] = slice;
  SAUROPOD_CHECK(region.offset.size() == full.size() && region.shape.size() == full.size());
  SAUROPOD_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= region.elements());
  for (size_t d = 0; d < full.size(); ++d)
    SAUROPOD_CHECK(region.offset[d] >= 0 && region.shape[d] >= 1 &&
                       (d == 0 || region.offset[d] + region.shape[d] <= full[d]),
                   "the slice {} reaches beyond [{}]", to_text(region), fmt::join(full, ", "));
  Region stored = region;
  if (!full.empty()) {
    stored.shape[0] = std::min(region.shape[0], full[0] - region.offset[0]);
    if (stored.shape[0] <= 0) return {};
  }
  std::vector<Region> boxes;
  const int64_t size = stored.elements();
  append_boxes(stored, 0, std::min(range.begin, size), std::min(range.end, size), boxes);
  return boxes;
}

void add_range(Snapshot& snapshot, const std::string& kind, const std::string& dtype,
               const std::vector<FlatEntry>& layout, ElementRange range, const void* data) {
  const auto element = static_cast<int64_t>(element_size(parse_element(dtype)));
  for_each_box(layout, range, [&](const FlatEntry& entry, const Region& box, int64_t position) {
    snapshot.boxes.push_back(
        {entry.parameter, kind, dtype, entry.slice.full_shape, box.offset, box.shape,
         static_cast<const char*>(data) + (position - range.begin) * element});
  });
}

void read_range(const Reader& reader, const std::string& kind, const std::string& dtype,
                const std::vector<FlatEntry>& layout, ElementRange range, void* out) {
  const auto element = static_cast<int64_t>(element_size(parse_element(dtype)));
  std::memset(out, 0, static_cast<size_t>(range.size() * element));
  for_each_box(layout, range, [&](const FlatEntry& entry, const Region& box, int64_t position) {
    const StoredTensor* stored = reader.manifest().find(entry.parameter, kind);
    if (stored == nullptr)
      base::fail("{} has no {} of {}: it is a checkpoint of another model", reader.path(), kind,
                 entry.parameter);
    if (stored->shape != entry.slice.full_shape)
      base::fail("{}: {} has shape [{}], the model's is [{}]", reader.path(), entry.parameter,
                 fmt::join(stored->shape, ", "), fmt::join(entry.slice.full_shape, ", "));
    reader.read(entry.parameter, kind, dtype, box.offset, box.shape,
                static_cast<char*>(out) + (position - range.begin) * element);
  });
}

}  // namespace sauropod::checkpoint

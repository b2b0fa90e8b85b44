#include "checkpoint/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"

namespace sauropod::checkpoint {
namespace {

Dimensions strides_of(const Dimensions& shape) {
  Dimensions strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

bool overlap(const Region& a, const Region& b) {
  for (size_t d = 0; d < a.offset.size(); ++d)
    if (a.offset[d] + a.shape[d] <= b.offset[d] || b.offset[d] + b.shape[d] <= a.offset[d])
      return false;
  return true;
}

// Two regions that share elements, if any. They are swept along the dimension with the most distinct
// offsets, where few are open at a time: n regions of a grid cost about n log n.
std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<Region>& regions,
                                                      size_t dimensions) {
  if (dimensions == 0) return regions.size() > 1 ? std::optional(std::pair<size_t, size_t>(0, 1))
                                                 : std::nullopt;
  size_t sweep = 0, most = 0;
  for (size_t d = 0; d < dimensions; ++d) {
    std::set<int64_t> offsets;
    for (const Region& region : regions) offsets.insert(region.offset[d]);
    if (offsets.size() > most) {
      most = offsets.size();
      sweep = d;
    }
  }
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(regions[a].offset[sweep], a) < std::pair(regions[b].offset[sweep], b);
  });
  std::vector<size_t> open;
  for (const size_t next : order) {
    const int64_t position = regions[next].offset[sweep];
    std::erase_if(open, [&](size_t other) {
      return regions[other].offset[sweep] + regions[other].shape[sweep] <= position;
    });
    for (const size_t other : open)
      if (overlap(regions[other], regions[next])) return std::pair(other, next);
    open.push_back(next);
  }
  return std::nullopt;
}

void cut_from(Region region, size_t dimension, int64_t limit, std::vector<Region>& pieces) {
  if (dimension == region.shape.size() || region.elements() <= limit) {
    pieces.push_back(std::move(region));
    return;
  }
  const int64_t begin = region.offset[dimension], size = region.shape[dimension];
  const int64_t row = region.elements() / size;
  const int64_t step = std::max<int64_t>(1, limit / row);
  for (int64_t at = 0; at < size; at += step) {
    region.offset[dimension] = begin + at;
    region.shape[dimension] = std::min(step, size - at);
    cut_from(region, dimension + 1, limit, pieces);
  }
}

}  // namespace

int64_t Region::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string to_text(const Region& region) {
  std::string text = "[";
  for (size_t d = 0; d < region.offset.size(); ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", region.offset[d],
                        region.offset[d] + region.shape[d]);
  return text + "]";
}

std::optional<Region> intersect(const Region& a, const Region& b) {
  Region part{Dimensions(a.offset.size()), Dimensions(a.offset.size())};
  for (size_t d = 0; d < a.offset.size(); ++d) {
    part.offset[d] = std::max(a.offset[d], b.offset[d]);
    part.shape[d] =
        std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]) - part.offset[d];
    if (part.shape[d] <= 0) return std::nullopt;
  }
  return part;
}

bool is_contiguous(const Region& box, const Region& part) {
  size_t d = 0;
  while (d < box.shape.size() && part.shape[d] == 1) ++d;
  // The first dimension with several elements may be cut; those after it may not.
  for (++d; d < box.shape.size(); ++d)
    if (part.shape[d] != box.shape[d]) return false;
  return true;
}

int64_t first_element(const Region& box, const Region& part) {
  const Dimensions strides = strides_of(box.shape);
  int64_t element = 0;
  for (size_t d = 0; d < strides.size(); ++d)
    element += (part.offset[d] - box.offset[d]) * strides[d];
  return element;
}

void copy_part(const Region& part, const Region& source_box, Element source_type,
               const void* source, const Region& target_box, Element target_type, void* target) {
  const size_t dimensions = part.shape.size();
  const Dimensions source_strides = strides_of(source_box.shape);
  const Dimensions target_strides = strides_of(target_box.shape);
  // A run spans the last dimensions as far back as both boxes have them whole, and the one before.
  size_t outer = dimensions;
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= part.shape[outer];
    if (part.shape[outer] != source_box.shape[outer] ||
        part.shape[outer] != target_box.shape[outer])
      break;
  }
  const char* from = static_cast<const char*>(source);
  char* to = static_cast<char*>(target);
  int64_t source_at = first_element(source_box, part);
  int64_t target_at = first_element(target_box, part);
  Dimensions index(outer, 0);
  while (true) {
    convert(source_type, from + source_at * static_cast<int64_t>(element_size(source_type)),
            target_type, to + target_at * static_cast<int64_t>(element_size(target_type)),
            static_cast<size_t>(run));
    size_t d = outer;
    while (d > 0) {
      --d;
      source_at += source_strides[d];
      target_at += target_strides[d];
      if (++index[d] < part.shape[d]) break;
      source_at -= source_strides[d] * part.shape[d];
      target_at -= target_strides[d] * part.shape[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

std::vector<Region> cut(const Region& box, int64_t limit) {
  SAUROPOD_CHECK(limit > 0);
  std::vector<Region> pieces;
  cut_from(box, 0, limit, pieces);
  return pieces;
}

std::optional<std::string> tiling_fault(const Dimensions& shape,
                                        const std::vector<Region>& regions) {
  int64_t full = 1;
  for (const int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(full, size, &full))
      return fmt::format("a tensor can't have a dimension of {}, or is too large", size);
  int64_t covered = 0;
  for (const Region& region : regions) {
    if (region.offset.size() != shape.size() || region.shape.size() != shape.size())
      return fmt::format("a box has {} dimensions where the tensor has {}", region.shape.size(),
                         shape.size());
    for (size_t d = 0; d < shape.size(); ++d)
      if (region.offset[d] < 0 || region.shape[d] < 1 || region.offset[d] >= shape[d] ||
          region.shape[d] > shape[d] - region.offset[d])
        return fmt::format("the box of {} elements from {} in dimension {} reaches beyond the {} "
                           "there are",
                           region.shape[d], region.offset[d], d, shape[d]);
    // Each box is at most `full`; a sum beyond it ends the loop before it could overflow.
    if (region.elements() > full - covered)
      return fmt::format("boxes overlap, the last of them {}", to_text(region));
    covered += region.elements();
  }
  if (const auto pair = find_overlap(regions, shape.size()))
    return fmt::format("boxes {} and {} overlap", to_text(regions[pair->first]),
                       to_text(regions[pair->second]));
  if (covered != full) return fmt::format("boxes cover {} of {} elements", covered, full);
  return std::nullopt;
}

}  // namespace sauropod::checkpoint

// Boxes of n-dimensional row-major tensors: cutting, intersecting, copying, and the check that boxes
// tile a tensor exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/element.h"

namespace sauropod::checkpoint {

using Dimensions = std::vector<int64_t>;

// The elements [offset, offset + shape) of a tensor; both have one entry a dimension. Sizes are >= 1.
struct Region {
  Dimensions offset;
  Dimensions shape;

  int64_t elements() const;
  bool operator==(const Region&) const = default;
};

std::string to_text(const Region& region);  // "[0:4, 2:8]"

std::optional<Region> intersect(const Region& a, const Region& b);

// Whether `part`, which lies within `box`, is one run of elements in the memory of `box`, and where
// that run begins, in elements.
bool is_contiguous(const Region& box, const Region& part);
int64_t first_element(const Region& box, const Region& part);

// Copies `part`, which lies within both boxes, from the memory of one to the memory of the other.
void copy_part(const Region& part, const Region& source_box, Element source_type,
               const void* source, const Region& target_box, Element target_type, void* target);

// Cuts a box into pieces of at most `limit` elements, each one run of its memory, in that order.
std::vector<Region> cut(const Region& box, int64_t limit);

// Why the regions do not tile a tensor of this shape exactly, or nothing when they do.
std::optional<std::string> tiling_fault(const Dimensions& shape,
                                        const std::vector<Region>& regions);

}  // namespace sauropod::checkpoint

// Which boxes of full tensors a range of a flat buffer holds, and the way between the two.
//
// A flat buffer has slices of parameters at offsets of its own, each contiguous and row-major, with gaps
// where they are aligned (model::ParameterMemory, and those that are laid out like it). A sharded
// optimizer has a range of one, which begins and ends anywhere, also in the middle of a row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/region.h"
#include "checkpoint/snapshot.h"

namespace sauropod::checkpoint {

// Elements [begin, end) of something; empty where begin == end.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// What replica number `replica` of several takes of `elements`: consecutive ranges that differ by at
// most one element, the longer ones first. Empty where there are more replicas than elements. Shares
// of a whole flat buffer make fewer boxes than shares of each of its parameters; with hundreds of
// replicas that decides whether the manifest stays small.
ElementRange share_of(int64_t elements, int64_t replica, int64_t replicas);

// What a rank holds of a tensor. The region may reach beyond the full shape in the first dimension, where
// a vocabulary is padded: what lies there is not stored.
struct Slice {
  Dimensions full_shape;  // without padding
  Region region;
};

// The elements `range` of a slice, counted row-major in it, as boxes of the full tensor: at most
// 2 × dimensions − 1, each one run of the slice's memory, in the order of that memory and without
// gaps in it. Padding is left out; it is at the end.
std::vector<Region> boxes_of(const Slice& slice, ElementRange range);

// A slice of a parameter that begins at element `begin` of a flat buffer.
struct FlatEntry {
  std::string parameter;
  Slice slice;
  int64_t begin = 0;
};

// Adds to a snapshot what the elements `range` of a flat buffer hold of its entries. `data` is the memory
// of those elements alone: its first element is range.begin. It must live until the snapshot is written.
void add_range(Snapshot& snapshot, const std::string& kind, const std::string& dtype,
               const std::vector<FlatEntry>& layout, ElementRange range, const void* data);

// Fills `out`, the memory of the elements `range` of a flat buffer, from a checkpoint; gaps and padding
// become 0. Throws base::Error when a tensor is missing or has another full shape.
void read_range(const Reader& reader, const std::string& kind, const std::string& dtype,
                const std::vector<FlatEntry>& layout, ElementRange range, void* out);

}  // namespace sauropod::checkpoint

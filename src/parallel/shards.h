// How the flat buffers of a model are divided into buckets, which are reduced and gathered one at a time,
// and each bucket among the data-parallel ranks (ZeRO-1: Rajbhandari et al., 2020).
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameter_memory.h"
#include "parallel/placement.h"

namespace sauropod::parallel {

// Elements [begin, end) of the flat buffers: whole parameters.
struct Bucket {
  int64_t begin = 0, end = 0;
  bool tied = false;  // the embedding that two stages hold: a bucket of its own, the same on both
  int64_t size() const { return end - begin; }
};

// Consecutive buckets of at least `elements` elements where there are as many, but for the last one.
std::vector<Bucket> make_buckets(const model::ParameterMemory& memory, const std::vector<Held>& held,
                                 int64_t elements);

// ranks + 1 offsets within a bucket: nearly equal shares that begin at multiples of 16 elements; shares of
// a small bucket may be empty.
std::vector<int64_t> share_offsets(const Bucket& bucket, int ranks);

// Runs of a rank's share, and where the optimizer's state for them begins in the state's own buffers.
using model::Piece;

// The shares of one rank, in the order of the buckets; of ranks = 1, everything.
std::vector<Piece> pieces_of(const std::vector<Bucket>& buckets, int ranks, int rank);

}  // namespace sauropod::parallel

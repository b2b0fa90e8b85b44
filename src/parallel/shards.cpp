#include "parallel/shards.h"

#include <algorithm>

namespace sauropod::parallel {
namespace {

constexpr int64_t kAlignment = 16;  // elements: 64 bytes of float

}  // namespace

std::vector<Bucket> make_buckets(const model::ParameterMemory& memory, const std::vector<Held>& held,
                                 int64_t elements) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < held.size(); ++i) {
    const int64_t begin = memory.offset(i);
    // A group lies back to back: only its first parameter begins at an aligned offset.
    const bool full = buckets.empty() || buckets.back().tied != held[i].tied ||
                      begin - buckets.back().begin >= elements;
    if (full && begin % kAlignment == 0 && !memory.continues_group(i)) {
      if (!buckets.empty()) buckets.back().end = begin;
      buckets.push_back({begin, 0, held[i].tied});
    }
  }
  if (!buckets.empty()) buckets.back().end = memory.flat_size();
  return buckets;
}

std::vector<int64_t> share_offsets(const Bucket& bucket, int ranks) {
  const int64_t units = (bucket.size() + kAlignment - 1) / kAlignment;
  std::vector<int64_t> offsets;
  for (int rank = 0; rank <= ranks; ++rank)
    offsets.push_back(std::min(bucket.size(), units * rank / ranks * kAlignment));
  return offsets;
}

std::vector<Piece> pieces_of(const std::vector<Bucket>& buckets, int ranks, int rank) {
  std::vector<Piece> pieces;
  int64_t state = 0;
  for (const Bucket& bucket : buckets) {
    const std::vector<int64_t> offsets = share_offsets(bucket, ranks);
    const auto at = static_cast<size_t>(rank);
    const int64_t begin = bucket.begin + offsets[at], end = bucket.begin + offsets[at + 1];
    if (begin == end) continue;
    if (!pieces.empty() && pieces.back().end == begin) {
      pieces.back().end = end;
    } else {
      pieces.push_back({begin, end, state});
    }
    state += end - begin;
  }
  return pieces;
}

}  // namespace sauropod::parallel

// Shares, boxes of ranges, and flat buffers.
#include "checkpoint/flat.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace sauropod::checkpoint {
namespace {

class Draws {
 public:
  explicit Draws(const char* name) : key_(base::random_key(11, name)) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(base::random_bits(key_, counter_++) %
                                static_cast<uint64_t>(limit));
  }
  Dimensions shape(int64_t most_dimensions, int64_t largest) {
    Dimensions shape(static_cast<size_t>(below(most_dimensions + 1)));
    for (int64_t& size : shape) size = 1 + below(largest);
    return shape;
  }
  Region region_of(const Dimensions& shape) {
    Region region{shape, shape};
    for (size_t d = 0; d < shape.size(); ++d) {
      region.offset[d] = below(shape[d]);
      region.shape[d] = 1 + below(shape[d] - region.offset[d]);
    }
    return region;
  }
  // A tiling of `full` by random cuts.
  std::vector<Region> tiles_of(const Region& full, int64_t cuts) {
    std::vector<Region> tiles{full};
    for (; cuts > 0 && !full.shape.empty(); --cuts) {
      Region& tile = tiles[static_cast<size_t>(below(static_cast<int64_t>(tiles.size())))];
      const auto d = static_cast<size_t>(below(static_cast<int64_t>(full.shape.size())));
      if (tile.shape[d] == 1) continue;
      Region rest = tile;
      tile.shape[d] = 1 + below(tile.shape[d] - 1);
      rest.offset[d] += tile.shape[d];
      rest.shape[d] -= tile.shape[d];
      tiles.push_back(rest);
    }
    return tiles;
  }

 private:
  uint64_t key_, counter_ = 0;
};

// The places in the full tensor, row-major, of a region's elements in its order.
std::vector<int64_t> places_of(const Dimensions& full, const Region& region) {
  std::vector<int64_t> places;
  Dimensions index(full.size(), 0);
  for (int64_t i = 0; i < region.elements(); ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < full.size(); ++d)
      place = place * full[d] + region.offset[d] + index[d];
    places.push_back(place);
    for (size_t d = full.size(); d-- > 0;) {
      if (++index[d] < region.shape[d]) break;
      index[d] = 0;
    }
  }
  return places;
}

TEST(Share, IsEqualToOneElement) {
  EXPECT_EQ(share_of(6, 0, 4), (ElementRange{0, 2}));
  EXPECT_EQ(share_of(6, 1, 4), (ElementRange{2, 4}));
  EXPECT_EQ(share_of(6, 2, 4), (ElementRange{4, 5}));
  EXPECT_EQ(share_of(6, 3, 4), (ElementRange{5, 6}));
  EXPECT_EQ(share_of(1, 0, 3).size(), 1);
  EXPECT_EQ(share_of(1, 1, 3).size(), 0);
  EXPECT_EQ(share_of(1, 2, 3).size(), 0);
  EXPECT_EQ(share_of(0, 1, 2).size(), 0);
  EXPECT_THROW(share_of(6, 4, 4), base::Bug);
  Draws draws("shares");
  for (int round = 0; round < 1000; ++round) {
    const int64_t elements = draws.below(round % 2 == 0 ? 30 : int64_t{1} << 60);
    const int64_t replicas = 1 + draws.below(20);
    int64_t position = 0, most = 0, least = elements;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      const ElementRange share = share_of(elements, replica, replicas);
      EXPECT_EQ(share.begin, position);
      position = share.end;
      most = std::max(most, share.size());
      least = std::min(least, share.size());
    }
    EXPECT_EQ(position, elements);
    EXPECT_LE(most - least, 1);
  }
}

TEST(BoxesOf, AreTheElementsOfTheRangeInOrder) {
  Draws draws("boxes");
  size_t most_boxes = 0;
  for (int round = 0; round < 3000; ++round) {
    const Dimensions full = draws.shape(5, 5);
    const Region region = round % 2 == 0 ? draws.region_of(full)
                                         : Region{Dimensions(full.size(), 0), full};
    const int64_t begin = draws.below(region.elements() + 1);
    const int64_t end = begin + draws.below(region.elements() - begin + 1);
    const std::vector<int64_t> slice = places_of(full, region);
    const std::vector<int64_t> expected(slice.begin() + begin, slice.begin() + end);
    std::vector<int64_t> places;
    const std::vector<Region> boxes = boxes_of({full, region}, {begin, end});
    for (const Region& box : boxes) {
      EXPECT_TRUE(is_contiguous(region, box));
      for (const int64_t place : places_of(full, box)) places.push_back(place);
    }
    ASSERT_EQ(places, expected) << to_text(region) << " " << begin << " to " << end;
    ASSERT_LE(boxes.size(), std::max<size_t>(1, 2 * full.size()) - (full.empty() ? 0 : 1));
    most_boxes = std::max(most_boxes, boxes.size());
  }
  EXPECT_GE(most_boxes, 7U);
}

TEST(BoxesOf, KnowsPadding) {
  // 10 rows, padded to 12, by three ranks; and to 24, by six, of which one has only padding.
  const Dimensions full{10, 3};
  EXPECT_EQ(boxes_of({full, {{8, 0}, {4, 3}}}, {0, 12}),
            (std::vector<Region>{{{8, 0}, {2, 3}}}));
  EXPECT_EQ(boxes_of({full, {{8, 0}, {4, 3}}}, {4, 9}),
            (std::vector<Region>{{{9, 1}, {1, 2}}}));
  EXPECT_TRUE(boxes_of({full, {{8, 0}, {4, 3}}}, {6, 12}).empty());
  EXPECT_TRUE(boxes_of({full, {{20, 0}, {4, 3}}}, {0, 12}).empty());
  EXPECT_THROW(boxes_of({full, {{0, 2}, {4, 2}}}, {0, 8}), base::Bug);
  EXPECT_THROW(boxes_of({full, {{0, 0}, {4, 3}}}, {0, 13}), base::Bug);
}

// Slices of any layout, each divided among replicas, tile the tensor; padded or not.
TEST(BoxesOf, OfSharesTileTheTensor) {
  Draws draws("tiling");
  for (int round = 0; round < 500; ++round) {
    const Dimensions full = draws.shape(4, 7);
    Region padded{Dimensions(full.size(), 0), full};
    if (!full.empty()) padded.shape[0] += draws.below(9);
    std::vector<Region> boxes;
    for (const Region& slice : draws.tiles_of(padded, draws.below(10))) {
      const int64_t replicas = 1 + draws.below(6);
      for (int64_t replica = 0; replica < replicas; ++replica)
        for (Region& box :
             boxes_of({full, slice}, share_of(slice.elements(), replica, replicas)))
          boxes.push_back(std::move(box));
    }
    const auto fault = tiling_fault(full, boxes);
    ASSERT_FALSE(fault) << *fault;
  }
}

// A flat buffer of random slices, in random ranges: each box's data is where the buffer has it.
TEST(AddRange, PointsIntoTheBuffer) {
  Draws draws("flat");
  for (int round = 0; round < 300; ++round) {
    std::vector<FlatEntry> layout;
    int64_t size = draws.below(20);
    for (int64_t parameters = 1 + draws.below(5); parameters > 0; --parameters) {
      const Dimensions full = draws.shape(3, 6);
      layout.push_back({"p" + std::to_string(parameters), {full, draws.region_of(full)}, size});
      if (!full.empty() && draws.below(3) == 0)
        layout.back().slice.region.shape[0] += draws.below(4);  // maybe padding
      size += layout.back().slice.region.elements() + draws.below(2) * draws.below(20);
    }
    // Every element of the buffer holds its place in its full tensor; gaps and padding hold -1.
    std::vector<double> buffer(static_cast<size_t>(size), -1);
    int64_t stored = 0;
    for (const FlatEntry& entry : layout) {
      Dimensions roomy = entry.slice.full_shape;  // with room for the padding, which comes last
      if (!roomy.empty()) roomy[0] += 4;
      const int64_t elements = Region{{}, entry.slice.full_shape}.elements();
      const auto places = places_of(roomy, entry.slice.region);
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] >= elements) continue;
        buffer[static_cast<size_t>(entry.begin) + i] = static_cast<double>(places[i]);
        ++stored;
      }
    }
    const int64_t ranks = 1 + draws.below(7);
    Snapshot snapshot;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const ElementRange range = share_of(size, rank, ranks);
      add_range(snapshot, "moment1", "F64", layout, range, buffer.data() + range.begin);
    }
    int64_t seen = 0;
    for (const Box& box : snapshot.boxes) {
      const auto places = places_of(box.full_shape, {box.offset, box.shape});
      for (size_t i = 0; i < places.size(); ++i)
        ASSERT_EQ(static_cast<const double*>(box.data)[i], static_cast<double>(places[i]));
      seen += static_cast<int64_t>(places.size());
    }
    ASSERT_EQ(seen, stored);
  }
}

}  // namespace
}  // namespace sauropod::checkpoint

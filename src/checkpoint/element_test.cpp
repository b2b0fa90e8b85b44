#include "checkpoint/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/region.h"

namespace sauropod::checkpoint {
namespace {

double value_of(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

// Nearest by definition: compares the distances to both neighbours in double.
uint16_t nearest(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  uint16_t below = 0;
  while (value_of(static_cast<uint16_t>(below + 0x100)) <= magnitude) below += 0x100;
  while (value_of(static_cast<uint16_t>(below + 1)) <= magnitude) ++below;
  const double down = magnitude - value_of(below);
  const double up = value_of(static_cast<uint16_t>(below + 1)) - magnitude;
  if (up < down || (up == down && (below & 1) != 0)) ++below;
  return sign | below;
}

TEST(Element, RoundsToNearestEvenOnce) {
  const uint64_t key = base::random_key(1, "bf16");
  for (uint64_t i = 0; i < 20000; ++i) {
    const double value = base::random_normal(key, i) * std::exp2(double(i % 200) - 100);
    ASSERT_EQ(bfloat16_of(value), nearest(value)) << value;
    // Just beside the middle of two neighbours, where rounding twice goes wrong.
    const uint16_t bits = bfloat16_of(value) & 0x7fff;
    const double middle =
        (value_of(bits) + value_of(static_cast<uint16_t>(bits + 1))) / 2;
    for (const double near : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300)})
      ASSERT_EQ(bfloat16_of(near), nearest(near)) << near;
    const auto single = static_cast<float>(value);
    uint16_t converted = 0;
    convert(Element::f32, &single, Element::bf16, &converted, 1);
    ASSERT_EQ(converted, nearest(static_cast<double>(single)));
  }
}

TEST(Element, SpecialValues) {
  EXPECT_EQ(bfloat16_of(0.0), 0);
  EXPECT_EQ(bfloat16_of(-0.0), 0x8000);
  EXPECT_EQ(bfloat16_of(INFINITY), 0x7f80);
  EXPECT_EQ(bfloat16_of(-1e300), 0xff80);
  EXPECT_EQ(bfloat16_of(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bfloat16_of(1e-300), 0);
  EXPECT_TRUE(std::isnan(value_of(bfloat16_of(std::nan("")))));
  const auto signalling = std::bit_cast<float>(uint32_t{0x7f800001});
  uint16_t converted = 0;
  convert(Element::f32, &signalling, Element::bf16, &converted, 1);
  EXPECT_TRUE(std::isnan(value_of(converted)));
  EXPECT_THROW(parse_element("F16"), base::Error);
}

TEST(Region, CutsIntoRunsOfMemory) {
  const Region box{{2, 0, 5}, {7, 3, 10}};
  for (const int64_t limit : {1, 3, 10, 29, 30, 31, 64, 210, 1000}) {
    int64_t position = 0;
    for (const Region& piece : cut(box, limit)) {
      EXPECT_LE(piece.elements(), limit);
      EXPECT_TRUE(is_contiguous(box, piece));
      EXPECT_EQ(first_element(box, piece), position);
      position += piece.elements();
    }
    EXPECT_EQ(position, box.elements());
  }
}

TEST(Region, Tiling) {
  EXPECT_FALSE(tiling_fault({}, {Region{}}));
  EXPECT_TRUE(tiling_fault({}, {Region{}, Region{}}));
  EXPECT_TRUE(tiling_fault({}, {}));
  EXPECT_TRUE(tiling_fault({0}, {}));
  EXPECT_TRUE(tiling_fault({4}, {{{0}, {2}}, {{1}, {2}}}));   // overlap
  EXPECT_TRUE(tiling_fault({4}, {{{0}, {2}}, {{3}, {1}}}));   // gap
  EXPECT_TRUE(tiling_fault({4}, {{{0}, {3}}, {{1}, {1}}}));   // as many elements, and an overlap
  EXPECT_TRUE(tiling_fault({4}, {{{-1}, {4}}}));
  EXPECT_TRUE(tiling_fault({4}, {{{INT64_MAX}, {4}}}));
  EXPECT_TRUE(tiling_fault({4}, {{{0, 0}, {4, 1}}}));
  // A thousand ranks of a thousand rows each take no quadratic time.
  std::vector<Region> rows;
  for (int64_t i = 0; i < 100'000; ++i) rows.push_back({{i * 10, 0}, {10, 7}});
  EXPECT_FALSE(tiling_fault({1'000'000, 7}, rows));
}

}  // namespace
}  // namespace sauropod::checkpoint

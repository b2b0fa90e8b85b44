#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"

namespace sauropod::base {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c0, p1 = uint64_t{kMultiplier1} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

uint64_t random_key(uint64_t seed, std::string_view name) { return hash64(name, seed); }

uint64_t random_bits(uint64_t key, uint64_t index) {
  const auto block = philox(key, index, 0);
  return uint64_t{block[1]} << 32 | block[0];
}

double random_uniform(uint64_t key, uint64_t index) {
  return static_cast<double>(random_bits(key, index) >> 11) * 0x1.0p-53;
}

std::pair<double, double> random_normal_pair(uint64_t key, uint64_t pair) {
  const auto block = philox(key, pair, 1);
  const uint64_t a = uint64_t{block[1]} << 32 | block[0], b = uint64_t{block[3]} << 32 | block[2];
  // (0, 1] keeps the logarithm finite.
  const double u = (static_cast<double>(a >> 11) + 1.0) * 0x1.0p-53;
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b >> 11) * 0x1.0p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double random_normal(uint64_t key, uint64_t index) {
  const auto [first, second] = random_normal_pair(key, index / 2);
  return index % 2 == 0 ? first : second;
}

uint64_t permute(uint64_t key, uint64_t size, uint64_t index) {
  SAUROPOD_CHECK(index < size);
  if (size == 1) return 0;
  // The smallest even number of bits that covers the range: the walk takes under four steps on
  // average.
  int bits = std::bit_width(size - 1);
  bits += bits & 1;
  const int half = bits / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t mixed = left ^ (philox(key, right, 2 + round)[0] & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

}  // namespace sauropod::base

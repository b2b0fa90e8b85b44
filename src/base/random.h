// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", 2011). A value is a pure function of (key, index), so any thread, rank or restart computes
// the same number without having drawn those before it. All functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sauropod::base {

// Ten rounds over a 128-bit counter with a 64-bit key.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// A key from a seed and a name, e.g. (run's seed, "layers.0.attention.query.weight").
uint64_t random_key(uint64_t seed, std::string_view name);

// Uniform in [0, 2^64).
uint64_t random_bits(uint64_t key, uint64_t index);

// Uniform in [0, 1), 53 bits.
double random_uniform(uint64_t key, uint64_t index);

// Standard normal by Box–Muller in double; elements 2i and 2i+1 come from one Philox block.
double random_normal(uint64_t key, uint64_t index);

// Elements 2·pair and 2·pair + 1 of random_normal at once.
std::pair<double, double> random_normal_pair(uint64_t key, uint64_t pair);

// A permutation of [0, size) evaluated at one point: a keyed Feistel network with cycle walking.
// Bijective for every size >= 1; index must be below size.
uint64_t permute(uint64_t key, uint64_t size, uint64_t index);

}  // namespace sauropod::base

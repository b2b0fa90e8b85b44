// XXH3-128 of bytes, as 32 lower-case hex digits in the canonical (big-endian) form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sauropod::base {

std::string hash128(const void* data, size_t size);
inline std::string hash128(std::string_view bytes) { return hash128(bytes.data(), bytes.size()); }

// XXH3-64 with a seed: for sampling decisions that must not depend on the order of things.
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);

// The same hash as hash128, fed piece by piece.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, size_t size);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sauropod::base

#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"

namespace sauropod::base {
namespace {

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

std::string hash128(const void* data, size_t size) { return hex(XXH3_128bits(data, size)); }

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Hasher::State {
  XXH3_state_t* value = XXH3_createState();
  ~State() { XXH3_freeState(value); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  SAUROPOD_CHECK(state_->value != nullptr && XXH3_128bits_reset(state_->value) == XXH_OK);
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, size_t size) {
  SAUROPOD_CHECK(XXH3_128bits_update(state_->value, data, size) == XXH_OK);
}

std::string Hasher::digest() const { return hex(XXH3_128bits_digest(state_->value)); }

}  // namespace sauropod::base

#include "checkpoint/element.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace sauropod::checkpoint {
namespace {

uint16_t bfloat16_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays a (quiet) NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
T load(const void* source, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(source) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(void* target, size_t index, T value) {
  std::memcpy(static_cast<char*>(target) + index * sizeof(T), &value, sizeof(T));
}

float float_of_bfloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace

Element parse_element(std::string_view name) {
  if (name == "F32") return Element::f32;
  if (name == "F64") return Element::f64;
  if (name == "BF16") return Element::bf16;
  base::fail("checkpoints hold elements of type F32, F64 and BF16, not \"{}\"", name);
}

size_t element_size(Element element) {
  switch (element) {
    case Element::f32:
      return 4;
    case Element::f64:
      return 8;
    case Element::bf16:
      return 2;
  }
  return 0;
}

uint16_t bfloat16_of(double value) {
  // Through float, rounded to odd, so that the second rounding sees whether anything was cut off.
  float narrow = static_cast<float>(value);
  if (std::isfinite(value) && static_cast<double>(narrow) != value) {
    if (std::fabs(static_cast<double>(narrow)) > std::fabs(value))
      narrow = std::nextafterf(narrow, 0.0F);
    narrow = std::bit_cast<float>(std::bit_cast<uint32_t>(narrow) | 1);
  }
  return bfloat16_of_float(narrow);
}

void convert(Element from, const void* source, Element to, void* target, size_t count) {
  if (from == to) {
    std::memcpy(target, source, count * element_size(from));
    return;
  }
  const auto each = [&](auto&& one) {
    for (size_t i = 0; i < count; ++i) one(i);
  };
  if (from == Element::f32 && to == Element::f64)
    each([&](size_t i) { store<double>(target, i, load<float>(source, i)); });
  else if (from == Element::f32)
    each([&](size_t i) { store(target, i, bfloat16_of_float(load<float>(source, i))); });
  else if (from == Element::f64 && to == Element::f32)
    each([&](size_t i) { store(target, i, static_cast<float>(load<double>(source, i))); });
  else if (from == Element::f64)
    each([&](size_t i) { store(target, i, bfloat16_of(load<double>(source, i))); });
  else if (to == Element::f32)
    each([&](size_t i) { store(target, i, float_of_bfloat16(load<uint16_t>(source, i))); });
  else
    each([&](size_t i) { store<double>(target, i, float_of_bfloat16(load<uint16_t>(source, i))); });
}

}  // namespace sauropod::checkpoint

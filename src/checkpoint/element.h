// Element types of stored tensors, and conversion between them.
//
// To a narrower type values are rounded once, to nearest with ties to even; what is too large becomes
// infinite, and a NaN stays a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sauropod::checkpoint {

enum class Element { f32, f64, bf16 };

// "F32", "F64", "BF16"; throws base::Error for others.
Element parse_element(std::string_view name);
size_t element_size(Element element);

uint16_t bfloat16_of(double value);

// Neither range may overlap the other. No alignment is required.
void convert(Element from, const void* source, Element to, void* target, size_t count);

}  // namespace sauropod::checkpoint

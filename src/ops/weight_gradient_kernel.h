// dW += dYᵀ X in bf16 with float sums: the contract between linear_cpu.cpp, which divides the rows of dW
// among threads, and the file compiled for AVX-512 with BF16.
//
// ATen's mm rounds its result to bf16, and a gradient that is summed over microbatches would lose what
// float accumulation is for; oneDNN's bf16-to-float product is not exported. Blocking as in Goto and
// van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): X is packed once for all
// threads, dYᵀ in blocks of 96 rows that stay in the second-level cache.
#pragma once

#include <cstdint>

namespace sauropod::ops {

// Tokens handled by one pass; longer products are split by the caller.
inline constexpr int64_t kGradientTokens = 512;
inline constexpr int64_t kGradientRows = 96;

// Elements of the packed form of X[tokens, n].
int64_t packed_elements(int64_t tokens, int64_t n);
int64_t gradient_scratch_bytes();

// Packs columns [begin, end) (multiples of 64, or n) of X[tokens, n] for the product.
void pack_gradient_input_avx512(const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t n,
                                int64_t begin, int64_t end, uint16_t* packed);

// dw[m, n] += dY[:, 0..m)ᵀ X for m <= kGradientRows, and db[m] += column sums of dY unless db is null.
// n must be a multiple of 16. scratch: gradient_scratch_bytes(), aligned to 64, one per thread.
void accumulate_gradient_avx512(const uint16_t* dy, int64_t dy_stride, int64_t tokens, int64_t m,
                                int64_t n, const uint16_t* packed, float* dw, int64_t dw_stride,
                                float* db, void* scratch);

}  // namespace sauropod::ops

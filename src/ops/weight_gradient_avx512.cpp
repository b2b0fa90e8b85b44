// The bf16 weight gradient for AVX-512 with BF16; the contract is in weight_gradient_kernel.h.
#include "ops/weight_gradient_kernel.h"

#include "ops/simd_avx512.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kPanel = 64;  // columns of X packed together: four vectors

inline int64_t even(int64_t tokens) { return (tokens + 1) / 2 * 2; }

// Interleaves two rows of 16 bf16: lane i holds (row0[i], row1[i]).
inline __m512i interleave(const bf16* row0, const bf16* row1, __mmask16 mask0, __mmask16 mask1) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask0, row0));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask1, row1));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// left[m][kGradientTokens] = dyᵀ, and db += its row sums.
void pack_left(const bf16* dy, int64_t stride, int64_t tokens, int64_t m, bf16* left, float* db) {
  for (int64_t column = 0; column < m; column += 16) {
    const int64_t width = m - column < 16 ? m - column : 16;
    const __mmask16 mask = (__mmask16)((1u << width) - 1);
    __m512 sum = _mm512_setzero_ps();
    for (int64_t token = 0; token < tokens; token += 32) {
      __m512i block[16];
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t row = token + 2 * i;
        const bf16* source = dy + row * stride + column;
        block[i] = row < tokens
                       ? interleave(source, source + stride, mask, row + 1 < tokens ? mask : 0)
                       : _mm512_setzero_si512();
        const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(block[i], 16));
        const __m512 high =
            _mm512_castsi512_ps(_mm512_and_si512(block[i], _mm512_set1_epi32((int)0xffff0000u)));
        sum = _mm512_add_ps(sum, _mm512_add_ps(low, high));
      }
      uint32_t* out = (uint32_t*)(left + column * kGradientTokens + token);
      transpose_16x16(block, out, kGradientTokens / 2);
    }
    if (db != nullptr)
      _mm512_mask_storeu_ps(db + column, mask,
                            _mm512_add_ps(_mm512_maskz_loadu_ps(mask, db + column), sum));
  }
}

}  // namespace

int64_t packed_elements(int64_t tokens, int64_t n) {
  return even(tokens) * ((n + kPanel - 1) / kPanel * kPanel);
}

int64_t gradient_scratch_bytes() { return kGradientRows * kGradientTokens * 2; }

void pack_gradient_input_avx512(const uint16_t* x, int64_t x_stride, int64_t tokens, int64_t n,
                                int64_t begin, int64_t end, uint16_t* packed) {
  for (int64_t column = begin; column < end; column += kPanel) {
    bf16* panel = packed + column * even(tokens);
    for (int64_t token = 0; token < tokens; token += 2)
      for (int64_t i = 0; i < kPanel; i += 16) {
        const __mmask16 mask = column + i < n ? 0xffff : 0;
        const bf16* source = x + token * x_stride + column + i;
        _mm512_storeu_si512(
            panel + token * kPanel + 2 * i,
            interleave(source, source + x_stride, mask, token + 1 < tokens ? mask : 0));
      }
  }
}

void accumulate_gradient_avx512(const uint16_t* dy, int64_t dy_stride, int64_t tokens, int64_t m,
                                int64_t n, const uint16_t* packed, float* dw, int64_t dw_stride,
                                float* db, void* scratch) {
  bf16* left = (bf16*)scratch;
  pack_left(dy, dy_stride, tokens, m, left, db);
  for (int64_t column = 0; column < n; column += kPanel)
    matmul_block<MatmulBf16>(m, n - column < kPanel ? n - column : kPanel, even(tokens), left,
                             kGradientTokens, packed + column * even(tokens), kPanel, dw + column,
                             dw_stride, true);
}

}  // namespace sauropod::ops

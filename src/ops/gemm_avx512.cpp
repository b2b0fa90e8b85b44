// Float matrix products for AVX-512; the contract is in gemm_kernel.h.
#include "ops/gemm_kernel.h"

#include "ops/simd_avx512.h"

namespace sauropod::ops {
namespace {

inline __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? (__mmask16)0xffff : count <= 0 ? (__mmask16)0 : (__mmask16)((1u << count) - 1);
}

// out[j][i] = in[i][j] for 16 rows of 16; rows from `rows` on and columns from `columns` on are 0.
inline void transpose_block(const float* in, int64_t in_stride, int64_t rows, int64_t columns,
                            float* out, int64_t out_stride) {
  const __mmask16 mask = first_lanes(columns);
  __m512i block[16];
  for (int64_t i = 0; i < 16; ++i)
    block[i] = i < rows ? _mm512_maskz_loadu_epi32(mask, in + i * in_stride) : _mm512_setzero_si512();
  transpose_16x16(block, (uint32_t*)out, out_stride);
}

}  // namespace

void pack_panel_avx512(const GemmOperand& b, int64_t depth, int64_t n, int64_t column,
                       float* packed) {
  const int64_t width = n - column < kGemmPanel ? n - column : kGemmPanel;
  if (!b.transposed) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < kGemmPanel; i += 16)
        _mm512_storeu_ps(packed + k * kGemmPanel + i,
                         _mm512_maskz_loadu_ps(first_lanes(width - i),
                                               b.data + k * b.stride + column + i));
    return;
  }
  for (int64_t i = 0; i < kGemmPanel; i += 16)
    for (int64_t k = 0; k < depth; k += 16) {
      const float* source = b.data + (column + i) * b.stride + k;
      const int64_t rows = width - i, columns = depth - k;
      if (columns >= 16) {
        transpose_block(source, b.stride, rows, 16, packed + k * kGemmPanel + i, kGemmPanel);
      } else {
        alignas(64) float staged[256];
        transpose_block(source, b.stride, rows, columns, staged, 16);
        for (int64_t j = 0; j < columns; ++j)
          _mm512_storeu_ps(packed + (k + j) * kGemmPanel + i, _mm512_load_ps(staged + 16 * j));
      }
    }
}

void pack_rows_avx512(const GemmOperand& a, int64_t rows, int64_t depth, float* packed) {
  for (int64_t i = 0; i < rows; i += 16)
    for (int64_t k = 0; k < depth; k += 16) {
      alignas(64) float staged[256];
      transpose_block(a.data + k * a.stride + i, a.stride, depth - k, rows - i, staged, 16);
      const int64_t count = rows - i < 16 ? rows - i : 16;
      for (int64_t j = 0; j < count; ++j)
        _mm512_storeu_ps(packed + (i + j) * kGemmDepth + k, _mm512_load_ps(staged + 16 * j));
    }
}

void multiply_panel_avx512(int64_t rows, int64_t columns, int64_t depth, const float* a,
                           int64_t a_stride, const float* panel, float* c, int64_t c_stride,
                           bool accumulate) {
  if (columns % 16 == 0) {
    matmul_block<MatmulF32>(rows, columns, depth, a, a_stride, panel, kGemmPanel, c, c_stride,
                            accumulate);
    return;
  }
  // A vector would reach past the row: compute beside it.
  alignas(64) float staged[kGemmRows * kGemmPanel];
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kGemmPanel; j += 16) {
      const __mmask16 mask = first_lanes(accumulate ? columns - j : 0);
      _mm512_store_ps(staged + i * kGemmPanel + j, _mm512_maskz_loadu_ps(mask, c + i * c_stride + j));
    }
  matmul_block<MatmulF32>(rows, kGemmPanel, depth, a, a_stride, panel, kGemmPanel, staged, kGemmPanel,
                          true);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kGemmPanel; j += 16)
      _mm512_mask_storeu_ps(c + i * c_stride + j, first_lanes(columns - j),
                            _mm512_load_ps(staged + i * kGemmPanel + j));
}

}  // namespace sauropod::ops

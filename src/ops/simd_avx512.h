// Vector helpers for the files compiled for AVX-512 with BF16 (x86-64-v4 plus avx512bf16).
//
// Everything here has internal linkage, and files that include it include no other header with inline
// functions or templates: a function compiled for these instructions must never be the copy that the
// linker keeps for code that runs on an older processor.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace {

typedef uint16_t bf16;  // the upper half of a float's bits

inline __m512 load_f32(const float* p) { return _mm512_loadu_ps(p); }
inline __m512 load_bf16(const bf16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline __m512 load16(const float* p) { return load_f32(p); }
inline __m512 load16(const bf16* p) { return load_bf16(p); }
inline __m512 load16(const float* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
inline __m512 load16(const bf16* p, __mmask16 m) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void store16(float* p, __m512 x) { _mm512_storeu_ps(p, x); }
inline void store16(bf16* p, __m512 x) {
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x));
}
inline void store16(float* p, __m512 x, __mmask16 m) { _mm512_mask_storeu_ps(p, m, x); }
inline void store16(bf16* p, __m512 x, __mmask16 m) {
  _mm256_mask_storeu_epi16(p, m, (__m256i)_mm512_cvtneps_pbh(x));
}

// 2^x to under 2 units in the last place for x in [-126, 127]; underflows to 0.
// x = n + r with |r| <= 1/2; 2^r by its minimax polynomial of degree 6.
inline __m512 exp2_ps(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.339887440266574e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.618437357674640e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550332471162809e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402264791363012e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931472028550421e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

inline __m512 exp_ps(__m512 x) {
  return exp2_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)));
}

// Transposes 16 rows of 16 32-bit elements; row i of the result is written to out + i * out_stride.
inline void transpose_16x16(__m512i r[16], uint32_t* out, int64_t out_stride) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_si512(out + i * out_stride, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_si512(out + (i + 8) * out_stride, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    _mm512_storeu_si512(out + (i + 4) * out_stride, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_storeu_si512(out + (i + 12) * out_stride, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

// The multiply step: acc[lane] += a . b[lane] where a is one pair (bf16) or one number (float).
struct MatmulBf16 {
  typedef bf16 T;
  static constexpr int kPair = 2;
  static __m512 broadcast(const T* a) { return _mm512_castsi512_ps(_mm512_set1_epi32(*(const int32_t*)a)); }
  static __m512 load(const T* b) { return _mm512_castsi512_ps(_mm512_loadu_si512(b)); }
  static __m512 step(__m512 acc, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
};

struct MatmulF32 {
  typedef float T;
  static constexpr int kPair = 1;
  static __m512 broadcast(const T* a) { return _mm512_set1_ps(*a); }
  static __m512 load(const T* b) { return _mm512_loadu_ps(b); }
  static __m512 step(__m512 acc, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, acc); }
};

// C[R, 16V] (+)= A[R, K] B[K, 16V]: A row-major, B as [K / kPair][ldb][kPair]; C in registers throughout.
template <class M, int R, int V>
inline void matmul_tile(int64_t k_size, const typename M::T* a, int64_t lda, const typename M::T* b,
                        int64_t ldb, float* c, int64_t ldc, bool add) {
  __m512 acc[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      acc[r][v] = add ? _mm512_loadu_ps(c + r * ldc + 16 * v) : _mm512_setzero_ps();
  for (int64_t k = 0; k < k_size; k += M::kPair) {
    __m512 bv[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) bv[v] = M::load(b + 16 * M::kPair * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 av = M::broadcast(a + r * lda + k);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] = M::step(acc[r][v], av, bv[v]);
    }
    b += ldb * M::kPair;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(c + r * ldc + 16 * v, acc[r][v]);
}

template <class M, int V>
inline void matmul_columns(int64_t m, int64_t k, const typename M::T* a, int64_t lda,
                           const typename M::T* b, int64_t ldb, float* c, int64_t ldc, bool add) {
  int64_t row = 0;
  for (; row + 6 <= m; row += 6)
    matmul_tile<M, 6, V>(k, a + row * lda, lda, b, ldb, c + row * ldc, ldc, add);
  a += row * lda;
  c += row * ldc;
  switch (m - row) {
    case 5: matmul_tile<M, 5, V>(k, a, lda, b, ldb, c, ldc, add); break;
    case 4: matmul_tile<M, 4, V>(k, a, lda, b, ldb, c, ldc, add); break;
    case 3: matmul_tile<M, 3, V>(k, a, lda, b, ldb, c, ldc, add); break;
    case 2: matmul_tile<M, 2, V>(k, a, lda, b, ldb, c, ldc, add); break;
    case 1: matmul_tile<M, 1, V>(k, a, lda, b, ldb, c, ldc, add); break;
    default: break;
  }
}

// C[m, n] (+)= A[m, k] B[k, n] for blocks that lie in the cache; n a multiple of 16, k of kPair.
template <class M>
inline void matmul_block(int64_t m, int64_t n, int64_t k, const typename M::T* a, int64_t lda,
                         const typename M::T* b, int64_t ldb, float* c, int64_t ldc, bool add) {
  int64_t column = 0;
  for (; column + 64 <= n; column += 64)
    matmul_columns<M, 4>(m, k, a, lda, b + column * M::kPair, ldb, c + column, ldc, add);
  b += column * M::kPair;
  c += column;
  switch ((n - column) / 16) {
    case 3: matmul_columns<M, 3>(m, k, a, lda, b, ldb, c, ldc, add); break;
    case 2: matmul_columns<M, 2>(m, k, a, lda, b, ldb, c, ldc, add); break;
    case 1: matmul_columns<M, 1>(m, k, a, lda, b, ldb, c, ldc, add); break;
    default: break;
  }
}

}  // namespace

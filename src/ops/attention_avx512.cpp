// Causal attention of one head for AVX-512 with BF16; the contract is in attention_kernel.h.
//
// All products are matmul_block: the left operand row-major, the right one packed so that a vector holds
// 16 columns of one (float) or two (bf16) steps of the reduction. The backward pass computes the
// transposed scores, keys by queries, because their rows are then the left operand of dV and dK, and
// pairs of their rows the right operand of dQ; nothing has to be transposed in the inner loop.
#include "ops/attention_kernel.h"
#include "ops/simd_avx512.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kBlock = 64;

inline int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Carves aligned arrays out of the scratch memory.
class Arena {
 public:
  explicit Arena(void* memory) : next_((char*)memory) {}
  template <class T>
  T* take(int64_t count) {
    T* result = (T*)next_;
    next_ += round_up(count * (int64_t)sizeof(T), 64);
    return result;
  }

 private:
  char* next_;
};

// dst[D / kPair][ld][kPair] = src[rows, D] transposed in units of kPair elements (32 bits); columns from
// `rows` to the next multiple of 64 are zero.
template <class M>
void pack_transposed(const typename M::T* src, int64_t stride, int64_t rows, int64_t d,
                     typename M::T* dst, int64_t ld) {
  const int64_t words = d / M::kPair;
  for (int64_t row = 0; row < round_up(rows, kBlock); row += 16)
    for (int64_t word = 0; word < words; word += 16) {
      const __mmask16 mask = words - word >= 16 ? 0xffff : (__mmask16)((1u << (words - word)) - 1);
      __m512i block[16];
      for (int64_t i = 0; i < 16; ++i)
        block[i] = row + i < rows
                       ? _mm512_maskz_loadu_epi32(mask, src + (row + i) * stride + word * M::kPair)
                       : _mm512_setzero_si512();
      uint32_t* out = (uint32_t*)dst + word * ld + row;
      if (words - word >= 16) {
        transpose_16x16(block, out, ld);
      } else {
        alignas(64) uint32_t staged[256];
        transpose_16x16(block, staged, 16);
        for (int64_t i = 0; i < words - word; ++i)
          _mm512_storeu_si512(out + i * ld, _mm512_load_si512(staged + 16 * i));
      }
    }
}

// dst[rows / kPair][ld][kPair]: src[rows, D] with kPair neighbouring rows interleaved; rows up to the next
// multiple of 64 and columns up to ld are zero.
void pack_rows(const float* src, int64_t stride, int64_t rows, int64_t d, float* dst, int64_t ld) {
  for (int64_t row = 0; row < round_up(rows, kBlock); ++row)
    for (int64_t column = 0; column < ld; column += 16) {
      const int64_t left = row < rows ? d - column : 0;
      const __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
      _mm512_storeu_ps(dst + row * ld + column,
                       _mm512_maskz_loadu_ps(mask, src + row * stride + column));
    }
}

void pack_rows(const bf16* src, int64_t stride, int64_t rows, int64_t d, bf16* dst, int64_t ld) {
  for (int64_t row = 0; row < round_up(rows, kBlock); row += 2)
    for (int64_t column = 0; column < ld; column += 16) {
      const int64_t left = d - column;
      const __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
      const __mmask16 mask0 = row < rows ? mask : 0, mask1 = row + 1 < rows ? mask : 0;
      const __m512i even = _mm512_cvtepu16_epi32(
          _mm256_maskz_loadu_epi16(mask0, src + row * stride + column));
      const __m512i odd = _mm512_cvtepu16_epi32(
          _mm256_maskz_loadu_epi16(mask1, src + (row + 1) * stride + column));
      _mm512_storeu_si512(dst + row * ld + 2 * column,
                          _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

// dst[D][ld] = src[rows, D] transposed element by element (a left operand); columns up to the next
// multiple of 64 are zero. `packed` is the result of pack_transposed, from which it is read.
void unpack_transposed(const float* packed, int64_t rows, int64_t d, float* dst, int64_t ld) {
  for (int64_t i = 0; i < d; ++i)
    for (int64_t column = 0; column < round_up(rows, kBlock); column += 16)
      _mm512_storeu_ps(dst + i * ld + column, _mm512_loadu_ps(packed + i * ld + column));
}

void unpack_transposed(const bf16* packed, int64_t rows, int64_t d, bf16* dst, int64_t ld) {
  for (int64_t i = 0; i < d; i += 2)
    for (int64_t column = 0; column < round_up(rows, kBlock); column += 16) {
      const __m512i pairs = _mm512_loadu_si512(packed + i * ld + 2 * column);
      _mm256_storeu_si256((__m256i*)(dst + i * ld + column), _mm512_cvtepi32_epi16(pairs));
      _mm256_storeu_si256((__m256i*)(dst + (i + 1) * ld + column),
                          _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
    }
}

// The smallest key any query of [begin, end) sees.
int64_t first_key(const AttentionTask& task, int64_t begin) {
  return task.first == nullptr ? 0 : task.first[begin];
}

template <class M>
void forward(const AttentionTask& task) {
  typedef typename M::T T;
  const int64_t rows = task.rows, d = task.head_size, padded = round_up(rows, kBlock);
  const int64_t d_pad = round_up(d, 16);
  Arena arena(task.scratch);
  T* k_pack = arena.take<T>(d * padded);
  T* v_pack = arena.take<T>(padded * d_pad);
  float* scores = arena.take<float>(kBlock * kBlock);
  T* probs = arena.take<T>(kBlock * kBlock);
  float* acc = arena.take<float>(kBlock * d_pad);
  pack_transposed<M>((const T*)task.k, task.kv_stride, rows, d, k_pack, padded);
  pack_rows((const T*)task.v, task.kv_stride, rows, d, v_pack, d_pad);
  const float c = task.scale * 1.44269504088896341f;
  const __m512 c_v = _mm512_set1_ps(c);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

  for (int64_t g = 0; g < task.group; ++g)
    for (int64_t q0 = 0; q0 < rows; q0 += kBlock) {
      const int64_t m = least(kBlock, rows - q0);
      const T* q = (const T*)task.q + q0 * task.q_stride + g * d;
      float row_max[kBlock], row_sum[kBlock];
      for (int64_t i = 0; i < m; ++i) row_max[i] = -1e30f, row_sum[i] = 0;
      for (int64_t i = 0; i < m * d_pad; i += 16) _mm512_storeu_ps(acc + i, _mm512_setzero_ps());

      for (int64_t k0 = first_key(task, q0) / kBlock * kBlock; k0 <= q0; k0 += kBlock) {
        matmul_block<M>(m, kBlock, d, q, task.q_stride, k_pack + k0 * M::kPair, padded, scores, kBlock,
                        false);
        const bool masked = k0 == q0 || (task.first != nullptr && task.first[q0 + m - 1] > k0);
        for (int64_t i = 0; i < m; ++i) {
          __m512 s[4];
          for (int v = 0; v < 4; ++v) {
            s[v] = _mm512_mul_ps(_mm512_loadu_ps(scores + i * kBlock + 16 * v), c_v);
            if (masked) {
              const __m512i key = _mm512_add_epi32(lane, _mm512_set1_epi32((int)(k0 + 16 * v)));
              __mmask16 seen = _mm512_cmple_epi32_mask(key, _mm512_set1_epi32((int)(q0 + i)));
              if (task.first != nullptr)
                seen &= _mm512_cmpge_epi32_mask(key, _mm512_set1_epi32(task.first[q0 + i]));
              s[v] = _mm512_mask_mov_ps(_mm512_set1_ps(-1e30f), seen, s[v]);
            }
          }
          const __m512 top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
          const float block_max = _mm512_reduce_max_ps(top);
          const float old_max = row_max[i];
          const float new_max = block_max > old_max ? block_max : old_max;
          // A row whose keys so far are all masked keeps its sum at zero.
          const __m512 shift = _mm512_set1_ps(new_max <= -1e30f ? 0.0f : new_max);
          __m512 sum = _mm512_setzero_ps();
          for (int v = 0; v < 4; ++v) {
            const __m512 p = exp2_ps(_mm512_sub_ps(s[v], shift));
            sum = _mm512_add_ps(sum, p);
            store16(probs + i * kBlock + 16 * v, p);
          }
          if (new_max > old_max) {
            const __m512 factor = exp2_ps(_mm512_set1_ps(old_max - new_max));
            row_sum[i] *= _mm512_cvtss_f32(factor);
            for (int64_t column = 0; column < d_pad; column += 16) {
              float* p = acc + i * d_pad + column;
              _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_loadu_ps(p), factor));
            }
            row_max[i] = new_max;
          }
          row_sum[i] += _mm512_reduce_add_ps(sum);
        }
        matmul_block<M>(m, d_pad, kBlock, probs, kBlock, v_pack + k0 * d_pad, d_pad, acc, d_pad, true);
      }

      T* out = (T*)task.out + q0 * task.out_stride + g * d;
      for (int64_t i = 0; i < m; ++i) {
        const __m512 inverse = _mm512_set1_ps(1.0f / row_sum[i]);
        for (int64_t column = 0; column < d; column += 16) {
          const __mmask16 mask = d - column >= 16 ? 0xffff : (__mmask16)((1u << (d - column)) - 1);
          store16(out + i * task.out_stride + column,
                  _mm512_mul_ps(_mm512_loadu_ps(acc + i * d_pad + column), inverse), mask);
        }
        task.log_sum[g * rows + q0 + i] = row_max[i] + __builtin_log2f(row_sum[i]);
      }
    }
}

// Two rows of gradients of the scores, as left operand (rows) and as right operand (row pairs).
inline void store_pair(bf16* left, bf16* right, __m512 even, __m512 odd) {
  store16(left, even);
  store16(left + kBlock, odd);
  const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
  const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
  _mm512_storeu_si512(right, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

template <class M>
void backward(const AttentionTask& task) {
  typedef typename M::T T;
  const int64_t rows = task.rows, d = task.head_size, padded = round_up(rows, kBlock);
  const int64_t d_pad = round_up(d, 16);
  Arena arena(task.scratch);
  T* q_t = arena.take<T>(d * padded);         // right operand of the scores
  T* o_t = arena.take<T>(d * padded);         // right operand of dP
  T* k_t = arena.take<T>(d * padded);         // packed, then unpacked into k_left
  T* k_left = arena.take<T>(d * padded);      // left operand of dQ
  T* q_rows = arena.take<T>(padded * d_pad);  // right operand of dK
  T* o_rows = arena.take<T>(padded * d_pad);  // right operand of dV
  float* dq_t = arena.take<float>(d * padded);
  float* dk = arena.take<float>(padded * d_pad);
  float* dv = arena.take<float>(padded * d_pad);
  float* delta = arena.take<float>(padded);
  float* log_sum = arena.take<float>(padded);
  float* scores = arena.take<float>(kBlock * kBlock);
  float* d_probs = arena.take<float>(kBlock * kBlock);
  T* probs = arena.take<T>(kBlock * kBlock);
  T* left = arena.take<T>(kBlock * kBlock);
  T* right = arena.take<T>(kBlock * kBlock);
  const T* k = (const T*)task.k;
  const T* v = (const T*)task.v;
  pack_transposed<M>(k, task.kv_stride, rows, d, k_t, padded);
  unpack_transposed(k_t, rows, d, k_left, padded);
  const __m512 c_v = _mm512_set1_ps(task.scale * 1.44269504088896341f);
  const __m512 scale_v = _mm512_set1_ps(task.scale);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t i = 0; i < padded * d_pad; i += 16) {
    _mm512_storeu_ps(dk + i, _mm512_setzero_ps());
    _mm512_storeu_ps(dv + i, _mm512_setzero_ps());
  }

  for (int64_t g = 0; g < task.group; ++g) {
    const T* q = (const T*)task.q + g * d;
    const T* out = (const T*)task.out + g * d;
    const T* d_out = (const T*)task.d_out + g * d;
    pack_transposed<M>(q, task.q_stride, rows, d, q_t, padded);
    pack_transposed<M>(d_out, task.out_stride, rows, d, o_t, padded);
    pack_rows(q, task.q_stride, rows, d, q_rows, d_pad);
    pack_rows(d_out, task.out_stride, rows, d, o_rows, d_pad);
    for (int64_t i = 0; i < padded; ++i) {
      __m512 sum = _mm512_setzero_ps();
      if (i < rows)
        for (int64_t column = 0; column < d; column += 16) {
          const __mmask16 mask = d - column >= 16 ? 0xffff : (__mmask16)((1u << (d - column)) - 1);
          sum = _mm512_fmadd_ps(load16(out + i * task.out_stride + column, mask),
                                load16(d_out + i * task.out_stride + column, mask), sum);
        }
      delta[i] = _mm512_reduce_add_ps(sum);
      // Padded queries get probability 0.
      log_sum[i] = i < rows ? task.log_sum[g * rows + i] : 1e30f;
    }
    for (int64_t i = 0; i < d * padded; i += 16) _mm512_storeu_ps(dq_t + i, _mm512_setzero_ps());

    for (int64_t k0 = 0; k0 < rows; k0 += kBlock) {
      const int64_t m = least(kBlock, rows - k0);
      for (int64_t q0 = k0; q0 < rows; q0 += kBlock) {
        const bool last = q0 + kBlock >= rows;
        const int64_t q_end = last ? rows : q0 + kBlock;
        if (task.first != nullptr && task.first[q0] >= k0 + kBlock) break;
        matmul_block<M>(m, kBlock, d, k + k0 * task.kv_stride, task.kv_stride, q_t + q0 * M::kPair,
                        padded, scores, kBlock, false);
        matmul_block<M>(m, kBlock, d, v + k0 * task.kv_stride, task.kv_stride, o_t + q0 * M::kPair,
                        padded, d_probs, kBlock, false);
        const bool masked = k0 == q0 || (task.first != nullptr && task.first[q_end - 1] > k0);
        for (int64_t i = 0; i < round_up(m, 2); i += 2)
          for (int vec = 0; vec < 4; ++vec) {
            const int64_t column = 16 * vec;
            const __m512 log_v = _mm512_loadu_ps(log_sum + q0 + column);
            const __m512 delta_v = _mm512_loadu_ps(delta + q0 + column);
            __m512 ds[2];
            for (int64_t pair = 0; pair < 2; ++pair) {
              if (i + pair >= m) {
                ds[pair] = _mm512_setzero_ps();
                continue;
              }
              const int64_t at = (i + pair) * kBlock + column;
              __m512 p = exp2_ps(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), c_v, log_v));
              if (masked) {
                const __m512i query = _mm512_add_epi32(lane, _mm512_set1_epi32((int)(q0 + column)));
                const __m512i key = _mm512_set1_epi32((int)(k0 + i + pair));
                __mmask16 seen = _mm512_cmpge_epi32_mask(query, key);
                if (task.first != nullptr) {
                  const int64_t valid = most(0, least(16, q_end - q0 - column));
                  const __mmask16 inside = (__mmask16)((1u << valid) - 1);
                  seen &= _mm512_cmple_epi32_mask(
                      _mm512_maskz_loadu_epi32(inside, task.first + q0 + column), key);
                }
                p = _mm512_maskz_mov_ps(seen, p);
              }
              store16(probs + at, p);
              ds[pair] = _mm512_mul_ps(
                  _mm512_mul_ps(p, _mm512_sub_ps(_mm512_loadu_ps(d_probs + at), delta_v)), scale_v);
            }
            if constexpr (M::kPair == 2) {
              store_pair(left + i * kBlock + column, right + i * kBlock + 2 * column, ds[0], ds[1]);
            } else {
              store16(left + i * kBlock + column, ds[0]);
              store16(left + (i + 1) * kBlock + column, ds[1]);
            }
          }
        matmul_block<M>(m, d_pad, kBlock, probs, kBlock, o_rows + q0 * d_pad, d_pad, dv + k0 * d_pad,
                        d_pad, true);
        matmul_block<M>(m, d_pad, kBlock, left, kBlock, q_rows + q0 * d_pad, d_pad, dk + k0 * d_pad,
                        d_pad, true);
        matmul_block<M>(d, kBlock, round_up(m, M::kPair), k_left + k0, padded,
                        M::kPair == 2 ? right : left, kBlock, dq_t + q0, padded, true);
      }
    }

    T* d_q = (T*)task.d_q + g * d;
    for (int64_t row = 0; row < rows; row += 16)
      for (int64_t column = 0; column < d; column += 16) {
        __m512i block[16];
        for (int64_t i = 0; i < 16; ++i)
          block[i] = column + i < d ? _mm512_loadu_si512(dq_t + (column + i) * padded + row)
                                    : _mm512_setzero_si512();
        alignas(64) uint32_t staged[256];
        transpose_16x16(block, staged, 16);
        const __mmask16 mask = d - column >= 16 ? 0xffff : (__mmask16)((1u << (d - column)) - 1);
        for (int64_t i = 0; i < least(16, rows - row); ++i)
          store16(d_q + (row + i) * task.dq_stride + column,
                  _mm512_load_ps((const float*)staged + 16 * i), mask);
      }
  }

  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < d; column += 16) {
      const __mmask16 mask = d - column >= 16 ? 0xffff : (__mmask16)((1u << (d - column)) - 1);
      store16((T*)task.d_k + row * task.dkv_stride + column,
              _mm512_loadu_ps(dk + row * d_pad + column), mask);
      store16((T*)task.d_v + row * task.dkv_stride + column,
              _mm512_loadu_ps(dv + row * d_pad + column), mask);
    }
}

}  // namespace

int64_t attention_scratch_bytes(int64_t rows, int64_t head_size) {
  const int64_t padded = round_up(rows, kBlock), wide = round_up(head_size, 16);
  return 4 * (9 * padded * wide + 2 * padded + 5 * kBlock * kBlock + kBlock * wide) + 16 * 64;
}

void attention_forward_f32_avx512(const AttentionTask& task) { forward<MatmulF32>(task); }
void attention_forward_bf16_avx512(const AttentionTask& task) { forward<MatmulBf16>(task); }
void attention_backward_f32_avx512(const AttentionTask& task) { backward<MatmulF32>(task); }
void attention_backward_bf16_avx512(const AttentionTask& task) { backward<MatmulBf16>(task); }

}  // namespace sauropod::ops

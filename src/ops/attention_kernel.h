// One head of causal attention on one thread: the contract between attention_cpu.cpp, which divides
// the work, and the files compiled for an instruction set, which do it.
//
// Algorithm: FlashAttention (Dao et al., 2022) in blocks of 64 queries by 64 keys; a block above the
// diagonal is never computed. Scores, softmax statistics and all sums are float; with bf16 inputs the
// probabilities and their gradients are rounded to bf16 for the second product, as in ATen's kernel.
// With `first`, query t sees only keys in [first[t], t] (documents packed into one sequence).
#pragma once

#include <cstdint>

namespace sauropod::ops {

// The element type of q, k, v, out and their gradients is the kernel's (float or bf16). Row t of query
// head g starts at q + t * q_stride + g * head_size; likewise for the others. `group` query heads share
// the key/value head. head_size must be a multiple of 2.
struct AttentionTask {
  int64_t rows = 0;       // T
  int64_t head_size = 0;  // D
  int64_t group = 1;
  float scale = 1;
  const int32_t* first = nullptr;  // [T] or null
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t q_stride = 0, kv_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  float* log_sum = nullptr;  // [group][T]: log2 of the sum of exponentials of the scaled scores
  // Backward only.
  const void* d_out = nullptr;  // strides of out
  void* d_q = nullptr;          // strides dq_stride, dkv_stride
  void* d_k = nullptr;
  void* d_v = nullptr;
  int64_t dq_stride = 0, dkv_stride = 0;
  // attention_scratch_bytes() bytes, aligned to 64; not shared between threads.
  void* scratch = nullptr;
};

int64_t attention_scratch_bytes(int64_t rows, int64_t head_size);

void attention_forward_f32_avx512(const AttentionTask& task);
void attention_forward_bf16_avx512(const AttentionTask& task);
void attention_backward_f32_avx512(const AttentionTask& task);
void attention_backward_bf16_avx512(const AttentionTask& task);

}  // namespace sauropod::ops

// Pointwise and row-wise kernels for the CPU: the table of functions that each instruction set fills in.
//
// pointwise.inc holds the one source of all of them, written with vectors of 16 floats; it is compiled
// once for each instruction set into a table of its own, and pointwise_kernels() picks one by the
// processor. Arithmetic is in float whatever the element type. Every kernel works on the rows or
// elements it is given on the calling thread; callers divide the work. Arrays need no alignment.
#pragma once

#include <cstdint>

namespace sauropod::ops {

// A row-wise normalisation with the residual additions before it:
//   sum = x + delta;  y = (sum − mean) · rstd · weight + bias   (LayerNorm)
//                    y = sum · rstd · weight                   (RMSNorm)
template <typename T>
struct NormForward {
  int64_t rows = 0, width = 0;
  bool rms = false;
  float epsilon = 0;
  const T* x = nullptr;
  const T* delta = nullptr;       // or null
  const T* weight = nullptr;
  const T* bias = nullptr;  // or null
  T* sum = nullptr;         // written when delta is given
  T* y = nullptr;
  float* mean = nullptr;  // [rows]
  float* rstd = nullptr;  // [rows]
};

// dx = d_sum + ∂y/∂sum · dy; d_weight and d_bias are added to (float).
template <typename T>
struct NormBackward {
  int64_t rows = 0, width = 0;
  bool rms = false;
  const T* sum = nullptr;
  const T* dy = nullptr;
  const T* d_sum = nullptr;  // or null
  const T* weight = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  T* dx = nullptr;
  float* d_weight = nullptr;  // [width]
  float* d_bias = nullptr;    // [width] or null
};

// What the loss needs to know of one row of logits, or of a part of one.
struct CrossEntropyRow {
  float log_sum = 0;       // ln Σ exp; −∞ of an empty part
  float target_logit = 0;  // 0 when the target is in another part
};

// AdamW (Loshchilov and Hutter, 2019) over a range of a flat buffer, in place:
//   g = gradient · gradient_scale;  m, v as in Adam;
//   w −= rate · (m / correction1 / (√(v / correction2) + ε) + decay · w)
struct AdamW {
  double rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 − βᵗ
  double gradient_scale = 1;
};

template <typename T>
struct PointwiseOf {
  void (*norm_forward)(const NormForward<T>&);
  void (*norm_backward)(const NormBackward<T>&);
  // y = gelu(x + bias), tanh form (Hendrycks and Gimpel, 2016); bias may be null.
  void (*gelu_forward)(int64_t rows, int64_t width, const T* x, const T* bias, T* y);
  // dx = dy · gelu'(x + bias); dx may be dy.
  void (*gelu_backward)(int64_t rows, int64_t width, const T* x, const T* bias, const T* dy, T* dx);
  // y = silu(gate) · up, with gate_up[rows, 2·width] holding both.
  void (*swiglu_forward)(int64_t rows, int64_t width, const T* gate_up, T* y);
  void (*swiglu_backward)(int64_t rows, int64_t width, const T* gate_up, const T* dy, T* d_gate_up);
  // target: its index among the logits; negative when it is in another part of the row.
  CrossEntropyRow (*cross_entropy_statistics)(int64_t width, const T* logits, int64_t target);
  // The logits become the gradient of scale · (log_sum − target's logit + z_loss · log_sum²), log_sum being
  // that of the whole row.
  void (*cross_entropy_gradient)(int64_t width, T* logits, int64_t target, float log_sum, float scale,
                                 float z_loss);
  // sums[width] += column sums of x[rows, width] with the given row stride.
  void (*column_sums)(int64_t rows, int64_t width, const T* x, int64_t stride, float* sums);
  // out = a + b (b may be null), rounded once.
  void (*add)(int64_t size, const T* a, const T* b, T* out);
  // sum += x, in float.
  void (*accumulate)(int64_t size, const T* x, float* sum);
  // out = x · factor.
  void (*scale)(int64_t size, const T* x, float factor, T* out);
  // Rotates pairs (i, i + size/2) of each head by the angles in cosine/sine[size/2] (NeoX form);
  // `direction` −1 undoes it.
  void (*rotate)(int64_t heads, int64_t head_size, T* row, const float* cosine, const float* sine,
                 float direction);
};

struct Bf16 {
  uint16_t bits;
};

struct PointwiseKernels {
  const char* name;
  PointwiseOf<float> f32;
  PointwiseOf<Bf16> bf16;
  // The gradient is set to zero on the way.
  void (*adamw)(const AdamW&, int64_t size, float* gradient, float* master, float* moment1,
                float* moment2);
  // The same, bit for bit, on a master copy that is split (adamw.h).
  void (*adamw_split)(const AdamW&, int64_t size, float* gradient, Bf16* weights, uint16_t* low,
                      float* moment1, float* moment2);
  double (*sum_of_squares)(int64_t size, const float* x);
  // `low` may be null in the first.
  void (*split_master)(int64_t size, const float* master, Bf16* weights, uint16_t* low);
  void (*join_master)(int64_t size, const Bf16* weights, const uint16_t* low, float* master);
};

const PointwiseKernels& pointwise_avx512();  // x86-64-v4 and AVX512-BF16
const PointwiseKernels& pointwise_avx2();    // x86-64-v3
const PointwiseKernels& pointwise_portable();

// The best table for this processor. SAUROPOD_CPU=avx2 or portable forces a lesser one (tests).
const PointwiseKernels& pointwise_kernels();

// Whether the kernels of attention_kernel.h and weight_gradient_kernel.h may run here.
bool have_avx512_bf16();

}  // namespace sauropod::ops

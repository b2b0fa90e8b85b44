// GELU and SwiGLU on the CPU.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/activation.h"
#include "ops/cpu.h"

namespace sauropod::ops {

at::Tensor activation_forward_cpu(Activation activation, const at::Tensor& pre,
                                  const at::Tensor& bias) {
  const bool gelu = activation == Activation::gelu;
  const int64_t rows = pre.size(0), in = pre.size(1), out = gelu ? in : in / 2;
  const at::Tensor y = gelu ? at::empty_like(pre) : at::empty({rows, out}, pre.options());
  with_element_type(pre, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, row_grain(in), [&](int64_t begin, int64_t end) {
      const T* x = elements<T>(pre) + begin * in;
      T* to = elements<T>(y) + begin * out;
      if (gelu) {
        pointwise<T>().gelu_forward(end - begin, in, x, elements<T>(bias), to);
      } else {
        pointwise<T>().swiglu_forward(end - begin, out, x, to);
      }
    });
  });
  return y;
}

at::Tensor activation_backward_cpu(Activation activation, const at::Tensor& pre,
                                   const at::Tensor& bias, const at::Tensor& dy) {
  const bool gelu = activation == Activation::gelu;
  const int64_t rows = pre.size(0), in = pre.size(1), out = gelu ? in : in / 2;
  const at::Tensor dx = gelu ? dy : at::empty_like(pre);
  with_element_type(pre, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, rows, row_grain(in), [&](int64_t begin, int64_t end) {
      const T* x = elements<T>(pre) + begin * in;
      const T* d = elements<T>(dy) + begin * out;
      T* to = elements<T>(dx) + begin * in;
      if (gelu) {
        pointwise<T>().gelu_backward(end - begin, in, x, elements<T>(bias), d, to);
      } else {
        pointwise<T>().swiglu_backward(end - begin, out, x, d, to);
      }
    });
  });
  return dx;
}

}  // namespace sauropod::ops

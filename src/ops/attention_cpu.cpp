// Divides attention among threads: one task is one key/value head of one sequence with its queries.
#include "ops/attention_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "ops/attention_kernel.h"
#include "ops/cpu.h"

namespace sauropod::ops {
namespace {

// Where one task's numbers lie.
struct Layout {
  explicit Layout(const AttentionShape& s)
      : shape(s),
        row((s.heads + 2 * s.kv_heads) * s.head_size),
        group(s.heads / s.kv_heads) {}
  int64_t query(int64_t sequence, int64_t kv_head) const {
    return sequence * shape.length * row + kv_head * group * shape.head_size;
  }
  int64_t key(int64_t sequence, int64_t kv_head) const {
    return sequence * shape.length * row + (shape.heads + kv_head) * shape.head_size;
  }
  int64_t value(int64_t sequence, int64_t kv_head) const {
    return key(sequence, kv_head) + shape.kv_heads * shape.head_size;
  }
  int64_t out(int64_t sequence, int64_t kv_head) const {
    return (sequence * shape.length * shape.heads + kv_head * group) * shape.head_size;
  }

  AttentionShape shape;
  int64_t row, group;
};

template <typename T>
AttentionTask make_task(const Layout& layout, const AttentionContext& context, int64_t sequence,
                        int64_t kv_head, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& log_sum, const at::Tensor& scratch) {
  const AttentionShape& shape = layout.shape;
  AttentionTask task;
  task.rows = shape.length;
  task.head_size = shape.head_size;
  task.group = layout.group;
  task.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_size));
  if (context.first.defined())
    task.first = elements<int32_t>(context.first) + sequence * shape.length;
  task.q = elements<T>(qkv) + layout.query(sequence, kv_head);
  task.k = elements<T>(qkv) + layout.key(sequence, kv_head);
  task.v = elements<T>(qkv) + layout.value(sequence, kv_head);
  task.q_stride = task.kv_stride = layout.row;
  task.out = elements<T>(out) + layout.out(sequence, kv_head);
  task.out_stride = shape.heads * shape.head_size;
  task.log_sum = elements<float>(log_sum) +
                 (sequence * shape.heads + kv_head * layout.group) * shape.length;
  task.scratch = scratch.data_ptr();
  return task;
}

template <typename Function>
void for_each_task(const AttentionShape& shape, const at::Tensor& like, const Function& function) {
  const int64_t bytes = attention_scratch_bytes(shape.length, shape.head_size);
  at::parallel_for(0, shape.sequences * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch = at::empty({bytes}, like.options().dtype(at::kByte));
    for (int64_t i = begin; i < end; ++i) function(i / shape.kv_heads, i % shape.kv_heads, scratch);
  });
}

}  // namespace

bool have_attention_kernel(const at::Tensor& qkv, const AttentionShape& shape) {
  return has_kernels(qkv) && have_avx512_bf16() && shape.head_size % 2 == 0;
}

at::Tensor attention_forward_cpu(const at::Tensor& qkv, const AttentionShape& shape,
                                 const AttentionContext& context, at::Tensor* log_sum) {
  const Layout layout(shape);
  const at::Tensor out =
      at::empty({shape.sequences * shape.length, shape.heads * shape.head_size}, qkv.options());
  *log_sum = at::empty({shape.sequences, shape.heads, shape.length},
                       qkv.options().dtype(at::kFloat));
  const bool is_float = qkv.scalar_type() == at::kFloat;
  for_each_task(shape, qkv, [&](int64_t sequence, int64_t head, const at::Tensor& scratch) {
    if (is_float) {
      attention_forward_f32_avx512(
          make_task<float>(layout, context, sequence, head, qkv, out, *log_sum, scratch));
    } else {
      attention_forward_bf16_avx512(
          make_task<Bf16>(layout, context, sequence, head, qkv, out, *log_sum, scratch));
    }
  });
  return out;
}

at::Tensor attention_backward_cpu(const at::Tensor& d_out, const at::Tensor& qkv,
                                  const at::Tensor& out, const at::Tensor& log_sum,
                                  const AttentionShape& shape, const AttentionContext& context) {
  const Layout layout(shape);
  const at::Tensor d_qkv = at::empty_like(qkv);
  with_element_type(qkv, [&](auto type) {
    using T = decltype(type);
    for_each_task(shape, qkv, [&](int64_t sequence, int64_t head, const at::Tensor& scratch) {
      AttentionTask task =
          make_task<T>(layout, context, sequence, head, qkv, out, log_sum, scratch);
      task.d_out = elements<T>(d_out) + layout.out(sequence, head);
      task.d_q = elements<T>(d_qkv) + layout.query(sequence, head);
      task.d_k = elements<T>(d_qkv) + layout.key(sequence, head);
      task.d_v = elements<T>(d_qkv) + layout.value(sequence, head);
      task.dq_stride = task.dkv_stride = layout.row;
      if constexpr (std::is_same_v<T, float>) {
        attention_backward_f32_avx512(task);
      } else {
        attention_backward_bf16_avx512(task);
      }
    });
  });
  return d_qkv;
}

void rotate_cpu(const at::Tensor& qkv, const AttentionShape& shape, const AttentionContext& context,
                float direction) {
  const Layout layout(shape);
  const int64_t half = shape.head_size / 2;
  with_element_type(qkv, [&](auto type) {
    using T = decltype(type);
    at::parallel_for(0, qkv.size(0), row_grain(layout.row), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        int64_t position = token % shape.length;
        if (context.first.defined()) position -= elements<int32_t>(context.first)[token];
        pointwise<T>().rotate(shape.heads + shape.kv_heads, shape.head_size,
                              elements<T>(qkv) + token * layout.row,
                              elements<float>(context.cosine) + position * half,
                              elements<float>(context.sine) + position * half, direction);
      }
    });
  });
}

}  // namespace sauropod::ops

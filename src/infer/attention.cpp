#include "infer/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>

#include "base/error.h"

namespace sauropod::infer {
namespace {

// [group · T, n], true where a row may see a key: token t of the new ones sees n − T + t + 1 keys.
at::Tensor visible(int64_t group, int64_t tokens, int64_t all, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kInt).device(device);
  const at::Tensor last = at::arange(all - tokens, all, options).repeat({group}).unsqueeze(1);
  return last.ge(at::arange(all, options).unsqueeze(0));
}

}  // namespace

at::Tensor cached_attention(const at::Tensor& qkv, const at::Tensor& keys, const at::Tensor& values,
                            const ops::AttentionShape& shape) {
  const int64_t tokens = qkv.size(0), all = keys.size(1), group = shape.heads / shape.kv_heads;
  const int64_t width = shape.heads * shape.head_size;
  SAUROPOD_CHECK(all >= tokens && values.size(1) == all);
  if (all == tokens && tokens > 1) {
    // The beginning of a sequence: the kernels of training.
    ops::AttentionShape whole = shape;
    whole.sequences = 1;
    whole.length = tokens;
    return ops::attention(qkv, whole, {});
  }
  // The query heads that share a key/value head become rows of one matrix: [1, kv_heads, group · T, D].
  const at::Tensor queries = qkv.narrow(1, 0, width)
                                 .view({tokens, shape.kv_heads, group, shape.head_size})
                                 .permute({1, 2, 0, 3})
                                 .reshape({1, shape.kv_heads, group * tokens, shape.head_size});
  const std::optional<at::Tensor> mask =
      tokens == 1 ? std::nullopt
                  : std::optional<at::Tensor>(visible(group, tokens, all, qkv.device()));
  const at::Tensor out =
      at::scaled_dot_product_attention(queries, keys.unsqueeze(0), values.unsqueeze(0), mask);
  return out.view({shape.kv_heads, group, tokens, shape.head_size})
      .permute({2, 0, 1, 3})
      .reshape({tokens, width});
}

}  // namespace sauropod::infer

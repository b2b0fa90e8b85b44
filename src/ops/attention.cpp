// Attention: the graph node over our kernels (shapes only on the meta device), and the form in ATen's
// operations for other types and devices, where autograd derives the backward pass.
#include "ops/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/attention_cpu.h"
#include "ops/cpu.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

class AttentionBackward : public Node {
 public:
  AttentionBackward(at::Tensor qkv, at::Tensor out, at::Tensor log_sum, AttentionShape shape,
                    AttentionContext context)
      : Node("Attention"),
        qkv_(std::move(qkv)),
        out_(std::move(out)),
        log_sum_(std::move(log_sum)),
        shape_(shape),
        context_(std::move(context)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (qkv_.is_meta()) return {at::empty_like(qkv_)};
    at::Tensor d_qkv = attention_backward_cpu(gradients[0].contiguous(), qkv_, out_, log_sum_,
                                              shape_, context_);
    if (context_.cosine.defined()) rotate_cpu(d_qkv, shape_, context_, -1.0f);
    qkv_.reset();
    out_.reset();
    return {d_qkv};
  }

 private:
  at::Tensor qkv_, out_, log_sum_;
  AttentionShape shape_;
  AttentionContext context_;
};

// [S, H, T, D] -> the same, rotated by the angles of each position, in the type of the angles.
at::Tensor rotate_aten(const at::Tensor& x, const AttentionShape& shape,
                       const AttentionContext& context) {
  at::Tensor cosine = context.cosine.narrow(0, 0, shape.length).unsqueeze(0);
  at::Tensor sine = context.sine.narrow(0, 0, shape.length).unsqueeze(0);
  if (context.first.defined()) {
    const at::Tensor positions =
        at::arange(shape.length, context.first.options()).unsqueeze(0).sub(context.first);
    const std::vector<int64_t> sizes{shape.sequences, shape.length, shape.head_size / 2};
    cosine = at::index_select(context.cosine, 0, positions.reshape({-1})).view(sizes);
    sine = at::index_select(context.sine, 0, positions.reshape({-1})).view(sizes);
  }
  cosine = cosine.unsqueeze(1);
  sine = sine.unsqueeze(1);
  const auto halves = x.to(cosine.scalar_type()).chunk(2, 3);
  return at::cat({halves[0].mul(cosine).sub(halves[1].mul(sine)),
                  halves[1].mul(cosine).add(halves[0].mul(sine))},
                 3)
      .to(x.scalar_type());
}

// [S, 1, T, T], true where a query may see a key.
at::Tensor visible(const at::Tensor& like, const AttentionShape& shape,
                   const AttentionContext& context) {
  const auto options = like.options().dtype(at::kInt).requires_grad(false);
  const at::Tensor position = at::arange(shape.length, options);
  at::Tensor mask = position.unsqueeze(1).ge(position.unsqueeze(0)).unsqueeze(0).unsqueeze(0);
  if (context.first.defined())
    mask = mask.logical_and(
        position.view({1, 1, 1, -1}).ge(context.first.unsqueeze(1).unsqueeze(3)));
  return mask;
}

at::Tensor attention_aten(const at::Tensor& qkv, const AttentionShape& shape,
                          const AttentionContext& context) {
  const int64_t s = shape.sequences, t = shape.length, d = shape.head_size;
  const auto parts = qkv.view({s, t, shape.heads + 2 * shape.kv_heads, d})
                         .transpose(1, 2)
                         .split_with_sizes({shape.heads, shape.kv_heads, shape.kv_heads}, 1);
  at::Tensor q = parts[0], k = parts[1], v = parts[2];
  if (context.cosine.defined()) {
    q = rotate_aten(q, shape, context);
    k = rotate_aten(k, shape, context);
  }
  if (shape.kv_heads != shape.heads) {
    k = k.repeat_interleave(shape.heads / shape.kv_heads, 1);
    v = v.repeat_interleave(shape.heads / shape.kv_heads, 1);
  }
  at::Tensor out;
  if (qkv.scalar_type() == at::kDouble) {
    // The plain form is the reference.
    const at::Tensor scores = at::matmul(q, k.transpose(2, 3)).div(std::sqrt(double(d)));
    const at::Tensor hidden = visible(qkv, shape, context).logical_not();
    out = at::matmul(
        at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1), v);
  } else if (context.first.defined()) {
    out = at::scaled_dot_product_attention(q, k, v, visible(qkv, shape, context));
  } else {
    out = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  }
  return out.transpose(1, 2).reshape({s * t, shape.heads * d});
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionShape& shape,
                     const AttentionContext& context) {
  SAUROPOD_CHECK(qkv.dim() == 2 && qkv.size(0) == shape.sequences * shape.length &&
                 qkv.size(1) == (shape.heads + 2 * shape.kv_heads) * shape.head_size &&
                 shape.heads % shape.kv_heads == 0);
  SAUROPOD_CHECK(!context.cosine.defined() || context.cosine.size(0) >= shape.length);
  if (!qkv.is_meta() && !have_attention_kernel(qkv, shape)) return attention_aten(qkv, shape, context);
  SAUROPOD_CHECK(qkv.is_contiguous());
  at::Tensor out, log_sum;
  const at::Tensor plain = qkv.detach();
  if (qkv.is_meta()) {
    // Neither SDPA nor the logical operations of the plain form have Meta kernels in libtorch 2.13.
    out = at::empty({qkv.size(0), shape.heads * shape.head_size}, plain.options());
  } else {
    const at::NoGradGuard no_grad;
    if (context.cosine.defined()) rotate_cpu(plain, shape, context, 1.0f);
    out = attention_forward_cpu(plain, shape, context, &log_sum);
  }
  if (recording())
    attach(c10::make_intrusive<AttentionBackward>(plain, out.detach(), log_sum, shape, context), {qkv},
           {out});
  return out;
}

void rotate(const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& positions,
            const at::Tensor& cosine, const at::Tensor& sine) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = qkv.size(0), rotated = shape.heads + shape.kv_heads;
  SAUROPOD_CHECK(qkv.is_contiguous() &&
                 qkv.size(1) == (rotated + shape.kv_heads) * shape.head_size &&
                 positions.dim() == 1 && positions.size(0) == tokens &&
                 positions.scalar_type() == at::kInt);
  if (has_kernels(qkv)) {
    // One sequence whose token i begins where its position is counted from.
    AttentionShape rows = shape;
    rows.sequences = 1;
    rows.length = tokens;
    const at::Tensor first = at::arange(tokens, positions.options()).sub(positions);
    rotate_cpu(qkv, rows, {first, cosine, sine}, 1.0f);
    return;
  }
  const auto halves =
      qkv.view({tokens, rotated + shape.kv_heads, shape.head_size}).narrow(1, 0, rotated).chunk(2, 2);
  const auto angles = [&](const at::Tensor& table) {
    return at::index_select(table, 0, positions).unsqueeze(1).to(qkv.scalar_type());
  };
  const at::Tensor c = angles(cosine), s = angles(sine);
  const at::Tensor turned = halves[0].mul(c).sub(halves[1].mul(s));
  halves[1].copy_(halves[1].mul(c).add(halves[0].mul(s)));
  halves[0].copy_(turned);
}

}  // namespace sauropod::ops

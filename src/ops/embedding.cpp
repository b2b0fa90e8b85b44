// Embeddings: the graph node and the form in ATen's operations.
#include "ops/embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "base/error.h"
#include "ops/cpu.h"
#include "ops/embedding_cpu.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

at::Tensor position_rows(const at::Tensor& tokens, const at::Tensor& positions) {
  if (positions.defined()) return positions.reshape({-1});
  return at::arange(tokens.size(1), tokens.options())
      .unsqueeze(0)
      .expand({tokens.size(0), tokens.size(1)})
      .reshape({-1});
}

// index_select has no Meta kernel in libtorch 2.13.
at::Tensor rows_of(const at::Tensor& weight, const at::Tensor& rows) {
  if (weight.is_meta()) return at::empty({rows.size(0), weight.size(1)}, weight.options());
  return at::index_select(weight, 0, rows);
}

void add_rows(const Weight& weight, const at::Tensor& rows, const at::Tensor& dx) {
  if (!weight.wants_gradient() || dx.is_meta()) return;
  weight.gradient.index_add_(0, rows, dx.to(weight.gradient.scalar_type()));
}

class EmbeddingBackward : public Node {
 public:
  EmbeddingBackward(at::Tensor tokens, at::Tensor positions, Weight token_weight,
                    Weight position_weight)
      : Node("Embedding"),
        tokens_(std::move(tokens)),
        positions_(std::move(positions)),
        token_weight_(std::move(token_weight)),
        position_weight_(std::move(position_weight)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor dx = gradients[0].contiguous();
    if (has_kernels(dx)) {
      embedding_backward_cpu(dx, tokens_, token_weight_);
      if (position_weight_.defined()) embedding_backward_cpu(dx, positions_, position_weight_);
    } else {
      add_rows(token_weight_, tokens_, dx);
      if (position_weight_.defined()) add_rows(position_weight_, positions_, dx);
    }
    return {};
  }

 private:
  at::Tensor tokens_, positions_;  // [tokens]
  Weight token_weight_, position_weight_;
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& positions,
                     const Weight& token_weight, const Weight& position_weight) {
  SAUROPOD_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kInt);
  const at::Tensor rows = tokens.reshape({-1}).contiguous();
  at::Tensor places, x;
  {
    const at::NoGradGuard no_grad;
    if (position_weight.defined()) places = position_rows(tokens, positions).contiguous();
    if (has_kernels(token_weight.value)) {
      x = embedding_forward_cpu(rows, places, token_weight.value, position_weight.value);
    } else {
      x = rows_of(token_weight.value, rows);
      if (position_weight.defined()) x = x.add(rows_of(position_weight.value, places));
    }
  }
  if (recording())
    attach(c10::make_intrusive<EmbeddingBackward>(rows, places, token_weight, position_weight), {},
           {x});
  return x;
}

}  // namespace sauropod::ops

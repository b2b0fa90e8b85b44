// Embeddings: the graph node and the form in ATen's operations.
#include "ops/embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

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

void check_ids(const at::Tensor& rows, int64_t size, const char* what) {
  if (!rows.is_cpu()) return;
  const int32_t* ids = elements<int32_t>(rows);
  for (int64_t i = 0; i < rows.size(0); ++i)
    if (ids[i] < 0 || ids[i] >= size)
      base::fail("{} {} at token {} is outside the model's table of {}: was the data packed with "
                 "another tokenizer?",
                 what, ids[i], i, size);
}

// For a table that is a part of the whole: the tokens in other parts.
at::Tensor elsewhere(const at::Tensor& weight, const at::Tensor& rows) {
  return rows.lt(0).logical_or(rows.ge(weight.size(0))).unsqueeze(1);
}

// index_select has no Meta kernel in libtorch 2.13.
at::Tensor rows_of(const at::Tensor& weight, const at::Tensor& rows, bool is_part) {
  if (weight.is_meta()) return at::empty({rows.size(0), weight.size(1)}, weight.options());
  if (!is_part) return at::index_select(weight, 0, rows);
  if (weight.size(0) == 0) return at::zeros({rows.size(0), weight.size(1)}, weight.options());
  return at::index_select(weight, 0, rows.clamp(0, weight.size(0) - 1))
      .masked_fill(elsewhere(weight, rows), 0);
}

void add_rows(const Weight& weight, const at::Tensor& rows, const at::Tensor& dx, bool is_part) {
  const int64_t size = weight.value.size(0);
  if (!weight.wants_gradient() || dx.is_meta() || size == 0) return;
  const at::Tensor wide = dx.to(weight.gradient.scalar_type());
  if (is_part) {
    weight.gradient.index_add_(0, rows.clamp(0, size - 1),
                               wide.masked_fill(elsewhere(weight.value, rows), 0));
  } else {
    weight.gradient.index_add_(0, rows, wide);
  }
}

class EmbeddingBackward : public Node {
 public:
  EmbeddingBackward(at::Tensor tokens, at::Tensor positions, Weight token_weight,
                    Weight position_weight, bool is_part)
      : Node("Embedding"),
        tokens_(std::move(tokens)),
        positions_(std::move(positions)),
        token_weight_(std::move(token_weight)),
        position_weight_(std::move(position_weight)),
        is_part_(is_part) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor dx = gradients[0].contiguous();
    if (has_kernels(dx)) {
      embedding_backward_cpu(dx, tokens_, token_weight_);
      if (position_weight_.defined()) embedding_backward_cpu(dx, positions_, position_weight_);
    } else {
      add_rows(token_weight_, tokens_, dx, is_part_);
      if (position_weight_.defined()) add_rows(position_weight_, positions_, dx, false);
    }
    return {};
  }

 private:
  at::Tensor tokens_, positions_;  // [tokens], rows of the weights; a token's may lie outside
  Weight token_weight_, position_weight_;
  bool is_part_;  // the token's table, of the whole
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& positions,
                     const Weight& token_weight, const Weight& position_weight, int64_t first_item,
                     int64_t vocabulary) {
  SAUROPOD_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kInt);
  const int64_t end = first_item + token_weight.value.size(0);
  SAUROPOD_CHECK(first_item >= 0 && (vocabulary == 0 || end <= vocabulary), "items {} to {} of {}",
                 first_item, end, vocabulary);
  const bool is_part = first_item > 0 || (vocabulary > 0 && end < vocabulary);
  at::Tensor rows, places, x;
  {
    const at::NoGradGuard no_grad;
    rows = tokens.reshape({-1}).contiguous();
    check_ids(rows, vocabulary == 0 ? end : vocabulary, "item");
    if (first_item > 0) rows = rows.sub(first_item);
    if (position_weight.defined()) {
      places = position_rows(tokens, positions).contiguous();
      check_ids(places, position_weight.value.size(0), "position");
    }
    if (has_kernels(token_weight.value)) {
      x = embedding_forward_cpu(rows, places, token_weight.value, position_weight.value);
    } else {
      x = rows_of(token_weight.value, rows, is_part);
      if (position_weight.defined()) x = x.add(rows_of(position_weight.value, places, false));
    }
  }
  if (recording())
    attach(c10::make_intrusive<EmbeddingBackward>(rows, places, token_weight, position_weight,
                                                   is_part),
           {}, {x});
  return x;
}

}  // namespace sauropod::ops

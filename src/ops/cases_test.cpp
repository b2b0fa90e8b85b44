// The cases of every operation, in many shapes, for operations_test.cpp.
#include <cmath>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

at::Tensor integers(const std::vector<int64_t>& shape, std::string_view name, int64_t below) {
  const at::Tensor x = at::empty(shape, at::kInt);
  const uint64_t key = base::random_key(7, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<int32_t>()[i] = static_cast<int32_t>(
        base::random_bits(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(below));
  return x;
}

Case linear_case(int64_t tokens, int64_t in, int64_t out, bool bias) {
  Case c;
  c.name = fmt::format("linear_{}x{}x{}{}", tokens, in, out, bias ? "_bias" : "");
  c.inputs = {random_numbers({tokens, in}, "x")};
  c.weights = {random_numbers({out, in}, "w"), bias ? random_numbers({out}, "b") : at::Tensor()};
  c.run = [](const Tensors& x, const std::vector<Weight>& w) {
    return Tensors{linear(x[0], w[0], w[1])};
  };
  return c;
}

Case norm_case(int64_t tokens, int64_t width, NormKind kind, bool delta, bool bias) {
  Case c;
  c.name = fmt::format("{}_norm_{}x{}{}{}", kind == NormKind::rms ? "rms" : "layer", tokens, width,
                       delta ? "_delta" : "", bias ? "_bias" : "");
  c.inputs = {random_numbers({tokens, width}, "x"),
              delta ? random_numbers({tokens, width}, "delta") : at::Tensor()};
  c.weights = {random_numbers({width}, "w"),
               bias ? random_numbers({width}, "b") : at::Tensor()};
  c.run = [kind](const Tensors& x, const std::vector<Weight>& w) {
    const Normalized result = add_norm(x[0], x[1], w[0], w[1], kind, 1e-5);
    return Tensors{result.sum, result.y};
  };
  return c;
}

Case mlp_case(int64_t tokens, int64_t hidden, int64_t width, Activation activation, bool bias,
              bool recompute) {
  const bool gelu = activation == Activation::gelu;
  Case c;
  c.name = fmt::format("mlp_{}_{}x{}x{}{}{}", gelu ? "gelu" : "swiglu", tokens, hidden, width,
                       bias ? "_bias" : "", recompute ? "_recompute" : "");
  c.inputs = {random_numbers({tokens, hidden}, "x")};
  // Scaled so that activations are of size 1, where the functions bend.
  c.weights = {random_numbers({gelu ? width : 2 * width, hidden}, "up", 1 / std::sqrt(hidden)),
               bias ? random_numbers({width}, "up bias") : at::Tensor(),
               random_numbers({hidden, width}, "down", 1 / std::sqrt(width)),
               bias ? random_numbers({hidden}, "down bias") : at::Tensor()};
  c.run = [=](const Tensors& x, const std::vector<Weight>& w) {
    return Tensors{mlp(x[0], activation, w[0], w[1], w[2], w[3], recompute)};
  };
  c.roundings = 5;  // pre, active, d_active, d_pre, the result
  return c;
}

// Documents in three patterns: one that begins near the start and crosses every block of 64; many short
// ones; some that begin around the blocks' border.
at::Tensor document_starts(int64_t sequences, int64_t length) {
  const at::Tensor first = at::empty({sequences, length}, at::kInt);
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t t = 0, start = 0; t < length; ++t) {
      const int64_t pattern = (s + length) % 3;
      if (t == 2 || (pattern == 0 && t % 3 == 2) ||
          (pattern == 2 && (t == 64 || t == 65 || t == 70)))
        start = t;
      first.data_ptr<int32_t>()[s * length + t] = static_cast<int32_t>(start);
    }
  return first;
}

Case attention_case(const AttentionShape& shape, bool documents, bool rotary) {
  Case c;
  c.name = fmt::format("attention_{}x{}_heads{}_{}x{}{}{}", shape.sequences, shape.length,
                       shape.heads, shape.kv_heads, shape.head_size, documents ? "_documents" : "",
                       rotary ? "_rotary" : "");
  c.inputs = {random_numbers({shape.sequences * shape.length,
                              (shape.heads + 2 * shape.kv_heads) * shape.head_size},
                             "qkv")};
  AttentionContext context;
  if (documents) context.first = document_starts(shape.sequences, shape.length);
  if (rotary) {
    const at::Tensor angles = random_numbers({shape.length + 3, shape.head_size / 2}, "angles", 3);
    context.cosine = angles.cos();
    context.sine = angles.sin();
  }
  c.run = [shape, context](const Tensors& x, const std::vector<Weight>&) {
    const auto table_type = gradient_type(x[0].scalar_type());
    AttentionContext there;
    if (context.first.defined()) there.first = context.first.to(x[0].device());
    if (context.cosine.defined()) {
      there.cosine = context.cosine.to(x[0].device(), table_type);
      there.sine = context.sine.to(x[0].device(), table_type);
    }
    return Tensors{attention(x[0], shape, there)};
  };
  c.roundings = 6;  // rotated inputs, probabilities, the output, d_scores, results, rotated back
  return c;
}

Case embedding_case(bool positions, bool explicit_positions, int64_t width) {
  Case c;
  c.name = fmt::format("embedding_{}{}{}", width, positions ? "_positions" : "",
                       explicit_positions ? "_given" : "");
  c.weights = {random_numbers({11, width}, "tokens"),
               positions ? random_numbers({9, width}, "positions") : at::Tensor()};
  const at::Tensor tokens = integers({3, 7}, "ids", 11);
  const at::Tensor places = explicit_positions ? integers({3, 7}, "places", 9) : at::Tensor();
  c.run = [=](const Tensors&, const std::vector<Weight>& w) {
    const at::Device device = w[0].value.device();
    return Tensors{embedding(tokens.to(device), places.defined() ? places.to(device) : places, w[0],
                             w[1])};
  };
  c.roundings = 1;
  return c;
}

Case cross_entropy_case(int64_t tokens, int64_t hidden, int64_t vocabulary, int64_t chunk,
                        double z_loss) {
  Case c;
  c.name = fmt::format("cross_entropy_{}x{}x{}_chunk{}{}", tokens, hidden, vocabulary, chunk,
                       z_loss > 0 ? "_z" : "");
  c.inputs = {random_numbers({tokens, hidden}, "x")};
  c.weights = {random_numbers({vocabulary, hidden}, "w", 1 / std::sqrt(hidden))};
  const at::Tensor targets = integers({tokens}, "targets", vocabulary);
  for (int64_t i = 1; i < tokens; i += 3) targets.data_ptr<int32_t>()[i] = -1;
  c.run = [=](const Tensors& x, const std::vector<Weight>& w) {
    CrossEntropyOptions options;
    options.scale = 1.0 / static_cast<double>(tokens);
    options.z_loss = z_loss;
    options.chunk = chunk;
    options.gradients = at::GradMode::is_enabled();
    return Tensors{linear_cross_entropy(x[0], w[0], targets.to(x[0].device()), options).loss};
  };
  c.is_loss = true;
  c.roundings = 3;  // logits, their gradient, the result
  return c;
}

Case recomputed_case(bool second) {
  Case c;
  c.name = fmt::format("recomputed{}", second ? "_two_inputs" : "");
  c.inputs = {random_numbers({6, 16}, "x"), second ? random_numbers({6, 16}, "y") : at::Tensor()};
  c.weights = {random_numbers({16}, "norm"), random_numbers({16, 16}, "w", 0.25)};
  c.run = [](const Tensors& x, const std::vector<Weight>& w) {
    return recomputed(
        [w](const Tensors& inputs) {
          const Normalized n = add_norm(inputs[0], inputs[1], w[0], {}, NormKind::rms, 1e-5);
          return Tensors{n.sum, linear(n.y, w[1])};
        },
        x);
  };
  c.roundings = 4;
  return c;
}

std::vector<Case> make_cases() {
  std::vector<Case> all{
      linear_case(7, 24, 10, true),
      linear_case(1, 16, 40, true),
      linear_case(67, 48, 33, false),
      linear_case(601, 80, 100, true),  // more than one pass, block and panel of the bf16 kernel
  };
  for (const bool delta : {false, true}) {
    for (const bool bias : {false, true})
      for (const NormKind kind : {NormKind::layer, NormKind::rms})
        all.push_back(norm_case(5, 24, kind, delta, bias));
    all.push_back(norm_case(33, 100, NormKind::layer, delta, true));
    all.push_back(norm_case(1, 1000, NormKind::rms, delta, false));
  }
  for (const bool recompute : {false, true}) {
    all.push_back(mlp_case(9, 24, 40, Activation::gelu, true, recompute));
    all.push_back(mlp_case(1, 16, 24, Activation::gelu, false, recompute));
    all.push_back(mlp_case(9, 24, 40, Activation::swiglu, false, recompute));
    all.push_back(mlp_case(67, 32, 208, Activation::swiglu, false, recompute));
  }
  for (const bool documents : {false, true})
    for (const bool rotary : {false, true}) {
      all.push_back(attention_case({2, 5, 2, 2, 8}, documents, rotary));
      all.push_back(attention_case({1, 130, 4, 2, 48}, documents, rotary));
      all.push_back(attention_case({2, 67, 2, 1, 80}, documents, rotary));
      all.push_back(attention_case({1, 65, 1, 1, 144}, documents, rotary));
    }
  all.push_back(attention_case({1, 1, 3, 1, 6}, false, true));
  all.push_back(attention_case({1, 200, 2, 2, 2}, true, false));
  for (const int64_t width : {24, 37}) {
    all.push_back(embedding_case(false, false, width));
    all.push_back(embedding_case(true, false, width));
    all.push_back(embedding_case(true, true, width));
  }
  for (const double z_loss : {0.0, 0.01}) {
    all.push_back(cross_entropy_case(7, 16, 37, 0, z_loss));
    all.push_back(cross_entropy_case(7, 24, 37, 3, z_loss));
    all.push_back(cross_entropy_case(1, 8, 37, 0, z_loss));
    all.push_back(cross_entropy_case(5, 16, 8209, 2, z_loss));  // three blocks of a row, and one left
  }
  all.push_back(recomputed_case(false));
  all.push_back(recomputed_case(true));
  return all;
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = make_cases();
  return all;
}

}  // namespace sauropod::ops

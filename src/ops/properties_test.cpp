// What the headers promise beside values: sums in float, the same bits for any number of threads, strided
// inputs, errors for ids outside the tables.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy_cpu.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/linear_cpu.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

const auto kBf16 = at::TensorOptions().dtype(at::kBFloat16);

Weight bf16_weight(const std::vector<int64_t>& shape) {
  return {at::ones(shape, kBf16), at::zeros(shape, at::kFloat)};
}

// Two tokens whose contributions are 1 and 2⁻¹⁰: their sum is no bf16 number, and neither is its double.
at::Tensor one_and_a_little(int64_t width) {
  const at::Tensor d = at::ones({2, width}, kBf16);
  d.select(0, 1).fill_(0x1p-10);
  return d;
}

// Every operation that adds to a weight's gradient, twice, in bf16.
class FloatSums : public testing::TestWithParam<int64_t> {
 protected:
  void expect_kept(const at::Tensor& gradient) {
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    EXPECT_TRUE(gradient.eq(2 * (1 + 0x1p-10)).all().item<bool>())
        << gradient.min().item<double>() << " to " << gradient.max().item<double>();
  }
  int64_t width() const { return GetParam(); }
};

TEST_P(FloatSums, Linear) {
  const Weight weight = bf16_weight({width(), width()}), bias = bf16_weight({width()});
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor x = at::ones({2, width()}, kBf16).requires_grad_(true);
    torch::autograd::backward({linear(x, weight, bias)}, {one_and_a_little(width())});
  }
  expect_kept(weight.gradient);
  expect_kept(bias.gradient);
}

TEST_P(FloatSums, MlpDown) {
  const Weight up = bf16_weight({width(), width()}), down = bf16_weight({width(), width()});
  const Weight down_bias = bf16_weight({width()});
  // gelu(x) = x for large x, so that the activation is 16, a power of two.
  const at::Tensor x = at::zeros({2, width()}, kBf16);
  x.select(1, 0).fill_(16);
  for (int pass = 0; pass < 2; ++pass)
    torch::autograd::backward({mlp(x, Activation::gelu, up, {}, down, down_bias, true)},
                              {one_and_a_little(width())});
  expect_kept(down.gradient.div(16));
  expect_kept(down_bias.gradient);
}

TEST_P(FloatSums, NormBias) {
  const Weight weight = bf16_weight({width()}), bias = bf16_weight({width()});
  const at::Tensor x = random_numbers({2, width()}, "x").to(at::kBFloat16);
  for (int pass = 0; pass < 2; ++pass) {
    const Normalized n = add_norm(x, {}, weight, bias, NormKind::layer, 1e-5);
    torch::autograd::backward({n.y}, {one_and_a_little(width())});
  }
  expect_kept(bias.gradient);
}

TEST_P(FloatSums, Embedding) {
  const Weight tokens = bf16_weight({3, width()}), places = bf16_weight({2, width()});
  const at::Tensor ids = at::full({2, 1}, 2, at::kInt);
  for (int pass = 0; pass < 2; ++pass)
    torch::autograd::backward({embedding(ids, {}, tokens, places)}, {one_and_a_little(width())});
  expect_kept(tokens.gradient[2]);
  expect_kept(places.gradient[0]);
  EXPECT_EQ(tokens.gradient.narrow(0, 0, 2).abs().sum().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Widths, FloatSums, testing::Values(16, 24, 37, 80));

TEST(Embedding, RefusesIdsOutsideTheTable) {
  const Weight weight = bf16_weight({10, 16}), places = bf16_weight({4, 16});
  EXPECT_THROW(embedding(at::full({1, 2}, 10, at::kInt), {}, weight, {}), base::Error);
  EXPECT_THROW(embedding(at::full({1, 2}, -1, at::kInt), {}, weight, {}), base::Error);
  EXPECT_THROW(embedding(at::full({1, 5}, 1, at::kInt), {}, weight, places), base::Error);
}

// An output that is the input itself must not become its own origin.
TEST(Recomputed, MayHandAnInputOn) {
  const at::Tensor leaf = random_numbers({3, 4}, "x").requires_grad_(true);
  const at::Tensor x = leaf.mul(3);
  const Tensors outputs =
      recomputed([](const Tensors& in) { return Tensors{in[0], in[0].mul(2)}; }, {x});
  torch::autograd::backward(outputs, {at::ones({3, 4}, at::kDouble), at::ones({3, 4}, at::kDouble)});
  EXPECT_TRUE(leaf.grad().eq(9).all().item<bool>());
}

TEST(Recomputed, MayLeaveAnInputUnused) {
  const at::Tensor a = random_numbers({3}, "a").requires_grad_(true);
  const at::Tensor b = random_numbers({3}, "b").requires_grad_(true);
  const Tensors outputs = recomputed([](const Tensors& in) { return Tensors{in[0].mul(2)}; }, {a, b});
  torch::autograd::backward(outputs, {at::ones({3}, at::kDouble)});
  EXPECT_TRUE(a.grad().eq(2).all().item<bool>());
  EXPECT_FALSE(b.grad().defined());
}

// A view whose rows are not back to back must give what its copy gives.
TEST(Norm, TakesStridedInputs) {
  const at::Tensor wide = random_numbers({9, 64}, "wide").to(at::kFloat);
  const at::Tensor view = wide.narrow(1, 8, 32);
  const auto run = [&](const at::Tensor& x, const at::Tensor& delta) {
    const at::Tensor leaf = x.detach().requires_grad_(true);
    const Weight weight{at::ones({32}), at::zeros({32})};
    const Normalized n = add_norm(leaf, delta, weight, {}, NormKind::rms, 1e-5);
    torch::autograd::backward({n.y}, {random_numbers({9, 32}, "dy").to(at::kFloat)});
    return Tensors{n.y, leaf.grad(), weight.gradient};
  };
  for (const bool with_delta : {false, true}) {
    const at::Tensor delta = with_delta ? wide.narrow(1, 30, 32) : at::Tensor();
    const Tensors strided = run(view, delta);
    const Tensors copied = run(view.contiguous(), with_delta ? delta.contiguous() : delta);
    for (size_t i = 0; i < strided.size(); ++i) EXPECT_TRUE(same_bits(strided[i], copied[i])) << i;
  }
}

TEST(Linear, TakesStridedInputs) {
  const at::Tensor wide = random_numbers({9, 64}, "wide").to(at::kBFloat16);
  const auto run = [&](const at::Tensor& x, bool feed_forward) {
    const at::Tensor leaf = x.detach().requires_grad_(true);
    const at::Tensor value = random_numbers({32, 32}, "w", 0.2).to(at::kBFloat16);
    const Weight weight{value, at::zeros({32, 32})}, down{value, at::zeros({32, 32})};
    const at::Tensor y = feed_forward ? mlp(leaf, Activation::gelu, weight, {}, down, {}, false)
                                      : linear(leaf, weight);
    torch::autograd::backward({y}, {random_numbers({9, 32}, "dy").to(at::kBFloat16)});
    return Tensors{y, leaf.grad(), weight.gradient};
  };
  for (const bool feed_forward : {false, true}) {
    const at::Tensor view = wide.narrow(1, 8, 32);
    const Tensors strided = run(view, feed_forward);
    const Tensors copied = run(view.contiguous(), feed_forward);
    // Another leading dimension may take another product with another order of sums.
    for (size_t i = 0; i < strided.size(); ++i)
      EXPECT_LE(relative_error(strided[i], copied[i]), 0x1p-9) << i;
  }
}

// For inference: the query and key heads of each token by its own position, the value heads left alone.
TEST(Rotate, EqualsTheFormulaInDouble) {
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_size = 6};
  const at::Tensor qkv = random_numbers({5, 48}, "qkv"), angles = random_numbers({9, 3}, "angles", 3);
  const at::Tensor positions = at::arange(5, at::kInt).mul(7).remainder(9);
  at::Tensor expected = qkv.clone();
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t head = 0; head < 6; ++head)
      for (int64_t i = 0; i < 3; ++i) {
        const double a = qkv[t][head * 6 + i].item<double>(), b = qkv[t][head * 6 + 3 + i].item<double>();
        const double angle = angles[t * 7 % 9][i].item<double>();
        expected[t][head * 6 + i] = a * std::cos(angle) - b * std::sin(angle);
        expected[t][head * 6 + 3 + i] = b * std::cos(angle) + a * std::sin(angle);
      }
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor got = qkv.to(type).clone();
    const auto table = gradient_type(type);
    rotate(got, shape, positions, angles.cos().to(table), angles.sin().to(table));
    // Three roundings in double and in float, one in bf16.
    EXPECT_LE(relative_error(got, expected), type == at::kDouble ? 1e-15 : type == at::kFloat ? 2e-7 : 0x1p-9);
    EXPECT_TRUE(same_bits(got.narrow(1, 36, 12), qkv.to(type).narrow(1, 36, 12)));
  }
}

// The same bits for any number of threads, where the work is divided by our own code.
class Threads : public testing::Test {
 protected:
  void TearDown() override { at::set_num_threads(threads_); }
  void expect_same_bits(const std::function<Tensors()>& run) {
    at::set_num_threads(1);
    const Tensors one = run();
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      const Tensors many = run();
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(same_bits(many[i], one[i])) << threads << " threads, result " << i;
    }
  }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(Threads, Cases) {
  for (const Case& c : cases()) {
    const bool ours = c.name.find("norm") != std::string::npos || c.name.starts_with("attention") ||
                      c.name.starts_with("embedding");
    if (!ours) continue;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      expect_same_bits([&] {
        const Results r = evaluate(c, type);
        Tensors all = r.outputs;
        for (const Tensors& more : {r.input_gradients, r.weight_gradients})
          for (const at::Tensor& x : more)
            if (x.defined()) all.push_back(x);
        return all;
      });
  }
}

TEST_F(Threads, LargeNorm) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_numbers({203, 500}, "x").to(type);
    const at::Tensor dy = random_numbers({203, 500}, "dy").to(type);
    const at::Tensor w = random_numbers({500}, "w").to(type);
    expect_same_bits([&] {
      const at::Tensor leaf = x.clone().requires_grad_(true);
      const Weight weight{w, at::zeros({500})}, bias{w, at::zeros({500})};
      const Normalized n = add_norm(leaf, {}, weight, bias, NormKind::layer, 1e-5);
      torch::autograd::backward({n.y}, {dy});
      return Tensors{n.y, leaf.grad(), weight.gradient, bias.gradient};
    });
  }
}

TEST_F(Threads, PointwiseAndRows) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor pre = random_numbers({130, 512}, "pre").to(type);
    const at::Tensor bias = random_numbers({512}, "bias").to(type);
    const at::Tensor dy = random_numbers({130, 512}, "dy").to(type);
    expect_same_bits([&] {
      const at::Tensor logits = pre.clone();
      const at::Tensor targets = at::arange(130, at::kInt);
      const at::Tensor nats = at::zeros({130}), sums = at::zeros({130});
      cross_entropy_cpu(logits, targets.data_ptr<int32_t>(), 0.5f, 0.01f, nats.data_ptr<float>(),
                        sums.data_ptr<float>());
      const at::Tensor column_sums = at::zeros({512});
      column_sums_cpu(pre, column_sums);
      return Tensors{activation_forward(Activation::gelu, pre, bias),
                     activation_backward(Activation::gelu, pre, bias, dy.clone()),
                     activation_forward(Activation::swiglu, pre, {}),
                     activation_backward(Activation::swiglu, pre, {},
                                         dy.narrow(1, 0, 256).contiguous()),
                     logits, nats, sums, column_sums};
    });
  }
}

TEST_F(Threads, Bf16WeightGradient) {
  const at::Tensor x = random_numbers({530, 160}, "x").to(at::kBFloat16);
  const at::Tensor dy = random_numbers({530, 200}, "dy").to(at::kBFloat16);
  if (!have_avx512_bf16()) GTEST_SKIP() << "the kernels in use are not those for AVX-512 with BF16";
  expect_same_bits([&] {
    const Weight weight{at::ones({200, 160}, kBf16), at::zeros({200, 160})};
    const Weight bias{at::ones({200}, kBf16), at::zeros({200})};
    accumulate_linear_gradient(dy, x, weight, bias);
    return Tensors{weight.gradient, bias.gradient};
  });
}

TEST_F(Threads, OptimizerAndSumOfSquares) {
  const int64_t size = (3 << 16) + 77;
  const at::Tensor values = random_numbers({size}, "values").to(at::kFloat);
  expect_same_bits([&] {
    Tensors state{values.clone(), values.mul(2), values.mul(0.1), values.square()};
    adamw({.rate = 0.01, .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1}, 5, size - 3,
          {state[0], state[1], {}, state[2], state[3]});
    state.push_back(at::full({1}, sum_of_squares(values), at::kDouble));
    return state;
  });
}

}  // namespace
}  // namespace sauropod::ops

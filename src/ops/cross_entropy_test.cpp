// The fused output layer and loss: the plain loss of ATen, chunks, targets that are left out or wrong.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/cross_entropy.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

const auto kBf16 = at::TensorOptions().dtype(at::kBFloat16);

// The gradient of the logits is rounded, but not their sum over tokens: two tokens whose probabilities
// differ by a factor of 2¹⁰ add up exactly.
TEST(CrossEntropy, WeightGradientsAreSummedInFloat) {
  const int64_t vocabulary = 32, hidden = 16;
  const Weight weight{at::zeros({vocabulary, hidden}, kBf16), at::zeros({vocabulary, hidden}, at::kFloat)};
  const at::Tensor x = at::ones({2, hidden}, kBf16);
  x.select(0, 1).fill_(0x1p-10);
  const at::Tensor targets = at::zeros({2}, at::kInt);
  for (int pass = 0; pass < 2; ++pass)
    linear_cross_entropy(x, weight, targets, {.scale = 1});
  // Equal logits: every probability is 1/32.
  const double expected = 2 * (1 + 0x1p-10) / 32;
  EXPECT_NEAR(weight.gradient[5][3].item<double>(), expected, 1e-7 * expected);
}

TEST(CrossEntropy, EqualsThePlainLossOfAten) {
  const int64_t tokens = 50, hidden = 24, vocabulary = 301;
  const at::Tensor x = random_numbers({tokens, hidden}, "x").requires_grad_(true);
  const at::Tensor w = random_numbers({vocabulary, hidden}, "w", 0.3).requires_grad_(true);
  const at::Tensor targets = at::arange(tokens, at::kInt).mul(5);
  targets[7] = -1;
  targets[49] = -1;
  // Sums over the 48 targets that are left.
  const at::Tensor plain =
      at::cross_entropy_loss(at::linear(x, w), targets.to(at::kLong), {}, /*reduction=*/1, -1);
  torch::autograd::backward({plain});
  for (const int64_t chunk : {0, 1, 7, 50, 64}) {
    const at::Tensor ours = x.detach().clone().requires_grad_(true);
    const Weight weight{w.detach(), at::zeros({vocabulary, hidden}, at::kDouble)};
    const CrossEntropy loss =
        linear_cross_entropy(ours, weight, targets, {.scale = 1.0 / 48, .chunk = chunk});
    torch::autograd::backward({loss.loss});
    // Both in double; sums of 301 terms.
    EXPECT_LE(relative_error(loss.loss, plain), 1e-14) << chunk;
    EXPECT_LE(relative_error(ours.grad(), x.grad()), 1e-13) << chunk;
    EXPECT_LE(relative_error(weight.gradient, w.grad()), 1e-13) << chunk;
    EXPECT_EQ(loss.nats[7].item<double>(), 0);
    EXPECT_LE(relative_error(loss.nats.sum().div(48), plain), 1e-14);
  }
}

TEST(CrossEntropy, ChunksGiveTheSameNumbersInEveryType) {
  const int64_t tokens = 70, hidden = 32, vocabulary = 500;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_numbers({tokens, hidden}, "x").to(type);
    const at::Tensor w = random_numbers({vocabulary, hidden}, "w", 0.3).to(type);
    const at::Tensor targets = at::arange(tokens, at::kInt).mul(7);
    const auto run = [&](int64_t chunk) {
      const at::Tensor input = x.clone().requires_grad_(true);
      const Weight weight{w, at::zeros({vocabulary, hidden}, at::kFloat)};
      const at::Tensor loss =
          linear_cross_entropy(input, weight, targets, {.scale = 1.0 / 70, .chunk = chunk}).loss;
      torch::autograd::backward({loss});
      return Tensors{loss.detach(), input.grad(), weight.gradient};
    };
    const Tensors plain = run(tokens);
    for (const int64_t chunk : {1, 13, 64}) {
      const Tensors chunked = run(chunk);
      // A product of other shape may sum in another order: 2⁻²⁴ √70 in float. In bf16 a logit or a
      // result that lies near the middle of two numbers may then round to the other one, up to 2⁻⁷ of it
      // apart; few do, which keeps the whole under the error of rounding itself.
      for (size_t i = 0; i < plain.size(); ++i)
        EXPECT_LE(relative_error(chunked[i], plain[i]), type == at::kFloat ? 1e-6 : 0x1p-9)
            << "chunk " << chunk << ", result " << i;
    }
  }
}

TEST(CrossEntropy, RefusesTargetsOutsideTheVocabulary) {
  const Weight weight{at::ones({10, 16}, kBf16), at::zeros({10, 16})};
  const at::Tensor x = at::ones({2, 16}, kBf16), targets = at::zeros({2}, at::kInt);
  targets[1] = 10;
  EXPECT_THROW(linear_cross_entropy(x, weight, targets, {}), base::Error);
}

TEST(CrossEntropy, LossMustBeTheRoot) {
  const Weight weight{at::ones({4, 8}), at::zeros({4, 8})};
  const at::Tensor x = at::ones({2, 8}).requires_grad_(true);
  const at::Tensor loss = linear_cross_entropy(x, weight, at::zeros({2}, at::kInt), {}).loss;
  EXPECT_THROW(torch::autograd::backward({loss.mul(2)}), base::Bug);
}

TEST(CrossEntropy, AllTargetsLeftOut) {
  const Weight weight{random_numbers({40, 16}, "w").to(at::kFloat), at::zeros({40, 16})};
  const at::Tensor x = random_numbers({3, 16}, "x").to(at::kFloat).requires_grad_(true);
  const CrossEntropy result =
      linear_cross_entropy(x, weight, at::full({3}, -1, at::kInt), {.z_loss = 0.1});
  torch::autograd::backward({result.loss});
  EXPECT_EQ(result.loss.item<double>(), 0);
  EXPECT_EQ(x.grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(weight.gradient.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace sauropod::ops

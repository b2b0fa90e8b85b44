#include "ops/notify.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace sauropod::ops {
namespace {

TEST(Notify, TellsOnceWhenAllGradientsAreKnownAndPassesThemOn) {
  const at::Tensor a = at::full({3}, 2.0).requires_grad_(true), b = at::full({3}, 5.0).requires_grad_(true);
  int told = 0;
  const auto marked = notify({a.mul(3), at::Tensor(), b.mul(7)}, [&] { ++told; });
  ASSERT_EQ(marked.size(), 3u);
  EXPECT_FALSE(marked[1].defined());
  EXPECT_TRUE(marked[0].eq(6).all().item<bool>() && marked[2].eq(35).all().item<bool>());
  EXPECT_EQ(told, 0);
  // Both are used twice.
  torch::autograd::backward({marked[0].mul(marked[2]).add(marked[0]).add(marked[2]).sum()});
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(a.grad().eq(3.0 * (35 + 1)).all().item<bool>());
  EXPECT_TRUE(b.grad().eq(7.0 * (6 + 1)).all().item<bool>());
}

TEST(Notify, IsNothingWithoutAGraph) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::full({3}, 2.0);
  EXPECT_TRUE(notify({a}, [] { FAIL(); })[0].is_same(a));
}

}  // namespace
}  // namespace sauropod::ops

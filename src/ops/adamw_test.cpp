// The optimizer's arithmetic over flat buffers.
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/adamw.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

const auto kBf16 = at::TensorOptions().dtype(at::kBFloat16);

TEST(SumOfSquares, IsExactEnoughAndSeesEverything) {
  for (const int64_t size : {1, 15, 16, 17, 1024, 1025, 65536, 65537, 200000}) {
    const at::Tensor x = random_numbers({size}, "x").to(at::kFloat);
    const double expected = x.to(at::kDouble).square().sum().item<double>();
    // Float sums of 1024/16 terms each: 2⁻²⁴ · 64 at worst.
    EXPECT_NEAR(sum_of_squares(x), expected, 4e-6 * expected) << size;
    EXPECT_NEAR(sum_of_squares(x.to(at::kDouble)), expected, 1e-12 * expected) << size;
    // The last element counts, and what is not finite stays so.
    x[size - 1] = 1e6;
    EXPECT_GT(sum_of_squares(x), 0.99e12);
    x[size - 1] = std::nan("");
    EXPECT_TRUE(std::isnan(sum_of_squares(x)));
    x[size - 1] = -HUGE_VAL;
    EXPECT_TRUE(std::isinf(sum_of_squares(x)));
  }
}

TEST(AdamW, EqualsTheFormulaInDouble) {
  const int64_t size = 1000, begin = 3, end = 990;
  const AdamW o{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1,
                .correction1 = 1 - std::pow(0.9, 3), .correction2 = 1 - std::pow(0.95, 3),
                .gradient_scale = 0.25};
  const at::Tensor g = random_numbers({size}, "g"), w = random_numbers({size}, "w");
  const at::Tensor m = random_numbers({size}, "m"), v = random_numbers({size}, "v").square();
  // Plain arithmetic, as written in pointwise_kernel.h.
  const at::Tensor m1 = m.mul(o.beta1).add(g.mul(o.gradient_scale), 1 - o.beta1);
  const at::Tensor v1 = v.mul(o.beta2).add(g.mul(o.gradient_scale).square(), 1 - o.beta2);
  const at::Tensor w1 =
      w.sub(m1.div(o.correction1).div(v1.div(o.correction2).sqrt().add(o.epsilon)).add(w, o.decay), o.rate);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto in = [&](const at::Tensor& x) { return x.to(type).clone(); };
    const at::Tensor gradient = in(g), master = in(w), moment1 = in(m), moment2 = in(v);
    adamw(o, begin, end, {gradient, master, {}, moment1, moment2});
    // A handful of roundings each: some 2⁻²⁴.
    const double tolerance = type == at::kDouble ? 1e-15 : 5e-7;
    const auto range = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    EXPECT_LE(relative_error(range(moment1), range(m1)), tolerance);
    EXPECT_LE(relative_error(range(moment2), range(v1)), tolerance);
    EXPECT_LE(relative_error(range(master), range(w1)), tolerance);
    EXPECT_EQ(range(gradient).abs().sum().item<double>(), 0);
    // Nothing outside the range.
    EXPECT_TRUE(same_bits(master.narrow(0, 0, begin), in(w).narrow(0, 0, begin)));
    EXPECT_TRUE(same_bits(master.narrow(0, end, size - end), in(w).narrow(0, end, size - end)));
    EXPECT_TRUE(same_bits(gradient.narrow(0, 0, begin), in(g).narrow(0, 0, begin)));
  }
}

TEST(AdamW, ASplitMasterCopyHasTheSameBits) {
  const int64_t size = 70001, begin = 5, end = 70000;
  const auto numbers = [&](const char* name) { return random_numbers({size}, name).to(at::kFloat); };
  at::Tensor gradient = numbers("g"), master = numbers("w"), moment1 = numbers("m"), moment2 = numbers("v").abs();
  const at::Tensor weights = at::zeros({size}, kBf16), low = at::zeros({size}, at::kShort);
  split_master(master, weights, low);
  const AdamWBuffers split{gradient.clone(), weights, low, moment1.clone(), moment2.clone()};
  const AdamWBuffers whole{gradient, master, {}, moment1, moment2};
  for (int step = 0; step < 3; ++step) {
    for (const AdamWBuffers* buffers : {&split, &whole}) {
      buffers->gradient.copy_(numbers("g").mul(step + 1));
      adamw({.rate = 0.01, .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1}, begin, end, *buffers);
    }
    const at::Tensor joined = at::empty({size});
    join_master(weights, low, joined);
    EXPECT_TRUE(same_bits(joined, master)) << step;
    EXPECT_TRUE(same_bits(split.moment1, moment1) && same_bits(split.moment2, moment2)) << step;
  }
  const at::Tensor error = weights.to(at::kFloat).sub(master).abs();
  EXPECT_TRUE(error.le(master.abs().mul(1.0 / 256)).all().item<bool>());
}

TEST(AdamW, WorksOnTheMetaDevice) {
  const at::Tensor x = at::zeros({64}, at::TensorOptions().device(at::kMeta));
  adamw({.rate = 0.1}, 0, 64, {x, x.to(at::kBFloat16), x.to(at::kShort), x.clone(), x.clone()});
  EXPECT_EQ(sum_of_squares(x), 0);
}

}  // namespace
}  // namespace sauropod::ops

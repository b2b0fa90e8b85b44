// The matrix products, our own in float and ATen's elsewhere, against double: sizes around every block.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/gemm.h"
#include "ops/pointwise_kernel.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

struct Size {
  int64_t tokens, in, out;
};

// Around panels of 64, blocks of 96 rows, passes of 512 and stripes of 4,096 columns.
const Size kSizes[] = {{1, 1, 1},    {1, 16, 5},     {2, 3, 64},    {5, 17, 65},   {6, 512, 33},
                       {95, 48, 96}, {97, 513, 130}, {200, 31, 63}, {7, 1030, 16}, {3, 40, 4099},
                       {3, 4100, 24}};

// Float: sums of at most 4,100 terms of random sign, each rounded to 2⁻²⁴: √4100 · 2⁻²⁴.
constexpr double kFloatTolerance = 4e-6;
// bf16: one rounding of the result to 8 significant bits.
constexpr double kBf16Tolerance = 0x1p-8;

TEST(Products, AgreeWithDouble) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.tokens << 'x' << size.in << 'x' << size.out);
    const at::Tensor x = random_numbers({size.tokens, size.in}, "x");
    const at::Tensor w = random_numbers({size.out, size.in}, "w");
    const at::Tensor dy = random_numbers({size.tokens, size.out}, "dy");
    const at::Tensor bias = random_numbers({size.out}, "bias");
    const at::Tensor before = random_numbers({size.out, size.in}, "before");
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const double tolerance = type == at::kFloat ? kFloatTolerance : kBf16Tolerance;
      const at::Tensor a = x.to(type), b = w.to(type), d = dy.to(type);
      // Against the exact product of what the operands were rounded to.
      const at::Tensor exact = a.to(at::kDouble).matmul(b.to(at::kDouble).t());
      const at::Tensor shifted = exact.add(bias.to(type).to(at::kDouble));
      EXPECT_LE(relative_error(times_transposed(a, b, bias.to(type)), shifted), 2 * tolerance);  // ATen may round twice
      EXPECT_LE(relative_error(times_transposed(a, b), exact), tolerance);
      // What was in the result before does not matter.
      const at::Tensor y = at::zeros({size.tokens, size.out}, a.options()).fill_(std::nan(""));
      times_transposed_out(y, a, b);
      EXPECT_LE(relative_error(y, exact), tolerance);
      EXPECT_LE(relative_error(times(d, b), d.to(at::kDouble).matmul(b.to(at::kDouble))), tolerance);
    }
    const at::Tensor sum = before.to(at::kFloat);
    add_transposed_times(sum, dy.to(at::kFloat), x.to(at::kFloat));
    EXPECT_LE(relative_error(sum, before.add(dy.t().matmul(x))), kFloatTolerance);
  }
}

TEST(Products, WriteNothingBesideTheResult) {
  const at::Tensor wide = at::zeros({5, 50}).fill_(7);
  const at::Tensor x = random_numbers({5, 20}, "x").to(at::kFloat);
  const at::Tensor w = random_numbers({33, 20}, "w").to(at::kFloat);
  times_transposed_out(wide.narrow(1, 4, 33), x, w);
  EXPECT_TRUE(wide.narrow(1, 0, 4).eq(7).all().item<bool>());
  EXPECT_TRUE(wide.narrow(1, 37, 13).eq(7).all().item<bool>());
  EXPECT_LE(relative_error(wide.narrow(1, 4, 33), x.to(at::kDouble).matmul(w.to(at::kDouble).t())), kFloatTolerance);
}

TEST(Products, SameBitsForAnyNumberOfThreads) {
  if (!have_avx512_bf16()) GTEST_SKIP() << "ATen's products are in use, which promise nothing";
  const int threads = at::get_num_threads();
  const at::Tensor x = random_numbers({203, 700}, "x").to(at::kFloat);
  const at::Tensor w = random_numbers({301, 700}, "w").to(at::kFloat);
  const at::Tensor dy = random_numbers({203, 301}, "dy").to(at::kFloat);
  const auto run = [&](int count) {
    at::set_num_threads(count);
    const at::Tensor sum = w.clone();
    add_transposed_times(sum, dy, x);
    return Tensors{times_transposed(x, w), times(dy, w), sum};
  };
  const Tensors one = run(1);
  for (const int count : {2, 3, 5}) {
    const Tensors many = run(count);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(many[i], one[i])) << count;
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace sauropod::ops

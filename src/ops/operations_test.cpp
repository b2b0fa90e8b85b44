// Every operation, in the cases of cases_test.cpp: finite differences in double, the kernels of float and
// bf16 against the form in double, shapes on the meta device, evaluation without gradients.
//
// The program runs once for each table of kernels (SAUROPOD_CPU; see CMakeLists.txt).
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/pointwise_kernel.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

// Σ outputs · cotangents, whose derivatives the backward pass must give.
double objective(const Case& c, const Tensors& inputs, const std::vector<Weight>& weights,
                 const Tensors& cotangents) {
  const at::NoGradGuard no_grad;
  const Tensors outputs = c.run(inputs, weights);
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i)
    sum += outputs[i].mul(cotangents[i]).sum().item<double>();
  return sum;
}

// Compares pairs by ‖a − b‖/‖b‖.
void expect_near(const Tensors& got, const Tensors& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << what << ' ' << i;
    if (!got[i].defined()) continue;
    ASSERT_EQ(got[i].sizes(), expected[i].sizes()) << what << ' ' << i;
    EXPECT_LE(relative_error(got[i], expected[i]), tolerance) << what << ' ' << i;
  }
}

class Operation : public testing::TestWithParam<size_t> {
 protected:
  const Case& c() const { return cases()[GetParam()]; }
};

// Central differences with a step of 1e-5: the truncation is about 1e-10 of the third derivative, and
// rounding of the objective, a sum of up to 1e4 numbers of size 1, 1e-16 · 1e2 / 1e-5 = 1e-9. Derivatives
// here are of size 1; single coordinates are compared with the size of the whole gradient.
constexpr double kStep = 1e-5;
constexpr double kDifferenceTolerance = 1e-7;

TEST_P(Operation, EqualsFiniteDifferencesInDouble) {
  const Results analytic = evaluate(c(), at::kDouble);
  const Tensors inputs = inputs_of(c(), at::kDouble, at::kCPU);
  const std::vector<Weight> weights = weights_of(c(), at::kDouble, at::kCPU);
  Tensors cotangents;
  for (const at::Tensor& output : analytic.outputs)
    cotangents.push_back(cotangent(c(), output, cotangents.size()));
  const auto value = [&] { return objective(c(), inputs, weights, cotangents); };
  const auto check = [&](const at::Tensor& x, const at::Tensor& gradient, const std::string& what) {
    if (!x.defined()) return;
    ASSERT_TRUE(gradient.defined()) << what;
    auto* values = x.data_ptr<double>();
    const at::Tensor flat = gradient.contiguous();
    const double typical =
        flat.norm().item<double>() / std::sqrt(static_cast<double>(x.numel()));
    ASSERT_GT(typical, 0) << what;
    // All coordinates of small tensors, a sample of large ones.
    const int64_t stride = x.numel() <= 160 ? 1 : x.numel() / 40 + 1;
    for (int64_t i = 0; i < x.numel(); i += stride) {
      const double kept = values[i];
      values[i] = kept + kStep;
      const double above = value();
      values[i] = kept - kStep;
      const double below = value();
      values[i] = kept;
      EXPECT_NEAR((above - below) / (2 * kStep), flat.data_ptr<double>()[i],
                  kDifferenceTolerance * std::max(1.0, typical))
          << what << '[' << i << ']';
    }
    // One random direction through all coordinates.
    const at::Tensor direction = random_numbers(x.sizes().vec(), "direction");
    const double length = direction.norm().item<double>();
    const at::Tensor kept = x.clone();
    x.add_(direction, kStep / length);
    const double above = value();
    x.copy_(kept).sub_(direction, kStep / length);
    const double below = value();
    x.copy_(kept);
    EXPECT_NEAR((above - below) / (2 * kStep), flat.mul(direction).sum().item<double>() / length,
                kDifferenceTolerance * std::max(1.0, typical))
        << what << " along a direction";
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    check(inputs[i], analytic.input_gradients[i], fmt::format("input {}", i));
  for (size_t i = 0; i < weights.size(); ++i)
    check(weights[i].value, analytic.weight_gradients[i], fmt::format("weight {}", i));
}

// Float: each result is a chain of a few sums of at most 601 terms of random sign, each term rounded to
// 2⁻²⁴: 2⁻²⁴ √601 = 1.5e-6 for one of them; the exponential's argument adds up to 20 · 2⁻²⁴ = 1.2e-6.
TEST_P(Operation, FloatKernelsAgreeWithDouble) {
  constexpr double kTolerance = 4e-6;
  const Results exact = evaluate(c(), at::kDouble), got = evaluate(c(), at::kFloat);
  expect_near(got.outputs, exact.outputs, kTolerance, "output");
  expect_near(got.input_gradients, exact.input_gradients, kTolerance, "gradient of input");
  expect_near(got.weight_gradients, exact.weight_gradients, kTolerance, "gradient of weight");
}

// bf16 has 8 significant bits. Rounding is off by at most 2⁻⁸ of the power of two below a number, evenly:
// as a root mean square 2⁻⁸/√3, and numbers are 1.4 to 1.5 times that power, so that one rounding of a
// tensor is 0.8 · 2⁻⁹ of its norm. Roundings in sequence add up as the root of their number, since these
// operations do not magnify the error of a random input; half as much again is for small tensors.
TEST_P(Operation, Bf16KernelsAgreeWithDouble) {
  const double tolerance = 1.2 * 0x1p-9 * std::sqrt(c().roundings);
  const Results exact = evaluate(c(), at::kDouble), got = evaluate(c(), at::kBFloat16);
  expect_near(got.outputs, exact.outputs, tolerance, "output");
  expect_near(got.input_gradients, exact.input_gradients, tolerance, "gradient of input");
  expect_near(got.weight_gradients, exact.weight_gradients, tolerance, "gradient of weight");
  for (const at::Tensor& gradient : got.weight_gradients) {
    if (gradient.defined()) { EXPECT_EQ(gradient.scalar_type(), at::kFloat); }
  }
}

TEST_P(Operation, WorksOnTheMetaDevice) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Results real = evaluate(c(), type), meta = evaluate(c(), type, at::kMeta);
    const auto expect_same = [&](const Tensors& a, const Tensors& b, const char* what) {
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].defined(), b[i].defined()) << what << ' ' << i;
        if (!a[i].defined()) continue;
        EXPECT_TRUE(b[i].is_meta()) << what << ' ' << i;
        EXPECT_EQ(a[i].sizes(), b[i].sizes()) << what << ' ' << i;
        EXPECT_EQ(a[i].scalar_type(), b[i].scalar_type()) << what << ' ' << i;
      }
    };
    expect_same(real.outputs, meta.outputs, "output");
    expect_same(real.input_gradients, meta.input_gradients, "gradient of input");
    expect_same(real.weight_gradients, meta.weight_gradients, "gradient of weight");
  }
}

TEST_P(Operation, EvaluationLeavesGradientsAndBuildsNoGraph) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Tensors trained = evaluate(c(), type).outputs;
    const std::vector<Weight> weights = weights_of(c(), type, at::kCPU);
    for (const Weight& weight : weights)
      if (weight.defined()) weight.gradient.fill_(3);
    Tensors outputs;
    {
      const at::NoGradGuard no_grad;
      Tensors inputs = inputs_of(c(), type, at::kCPU);
      for (at::Tensor& input : inputs)
        if (input.defined()) input.requires_grad_(true);
      outputs = c().run(inputs, weights);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i].grad_fn(), nullptr);
      EXPECT_TRUE(same_bits(outputs[i], trained[i])) << "output " << i;
    }
    for (const Weight& weight : weights)
      if (weight.defined()) { EXPECT_TRUE(weight.gradient.eq(3).all().item<bool>()); }
  }
}

// The backward pass adds to the gradients that are there, and twice the same gives twice the gradient.
TEST_P(Operation, GradientsAccumulate) {
  const Results once = evaluate(c(), at::kFloat);
  Tensors inputs = inputs_of(c(), at::kFloat, at::kCPU);
  const std::vector<Weight> weights = weights_of(c(), at::kFloat, at::kCPU);
  for (int pass = 0; pass < 2; ++pass) {
    Tensors fresh;
    for (const at::Tensor& input : inputs)
      fresh.push_back(input.defined() ? input.clone().requires_grad_(true) : input);
    const Tensors outputs = c().run(fresh, weights);
    Tensors cotangents;
    for (size_t i = 0; i < outputs.size(); ++i)
      cotangents.push_back(cotangent(c(), outputs[i], i));
    torch::autograd::backward(outputs, cotangents);
  }
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i].defined()) {
      // The sums over tokens may be formed on top of what is there: 2⁻²⁴ √601 as above.
      EXPECT_LE(relative_error(weights[i].gradient, once.weight_gradients[i].mul(2)), 4e-6) << i;
    }
}

// A number that is none never vanishes: some element of every output is not finite, and so is the
// gradient of every weight. ATen's attention gives zeros for a query that is none, and only there.
TEST_P(Operation, NanAndInfinityPropagate) {
  const bool in_weight = c().inputs.empty();
  const int64_t width = (in_weight ? c().weights : c().inputs)[0].size(1);
  std::vector<int64_t> columns{width - 1};
  if (!c().name.starts_with("attention") || have_avx512_bf16()) columns.push_back(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
      for (const int64_t column : columns) {
        SCOPED_TRACE(testing::Message() << bad << " in column " << column);
        Case poisoned = c();
        at::Tensor& victim = (in_weight ? poisoned.weights : poisoned.inputs)[0];
        victim = victim.clone();
        // In the last row, but in one that a loss does not leave out; in every row of a table.
        const int64_t row = c().is_loss ? 0 : victim.size(0) - 1;
        (in_weight ? victim : victim.narrow(0, row, 1)).select(1, column).fill_(bad);
        const Results results = evaluate(poisoned, type);
        for (const at::Tensor& output : results.outputs)
          EXPECT_FALSE(output.isfinite().all().item<bool>());
        for (const at::Tensor& gradient : results.weight_gradients)
          if (gradient.defined() && std::isnan(bad) && gradient.dim() == 2 && !in_weight) {
            EXPECT_FALSE(gradient.isfinite().all().item<bool>());
          }
      }
}

INSTANTIATE_TEST_SUITE_P(All, Operation, testing::Range(size_t{0}, cases().size()),
                         [](const auto& info) { return cases()[info.param].name; });

}  // namespace
}  // namespace sauropod::ops

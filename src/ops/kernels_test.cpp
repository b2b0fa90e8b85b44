// The tables of pointwise kernels of every instruction set against the portable one, function by function.
#include <gtest/gtest.h>

#include "ops/cpu.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

const PointwiseKernels* table(std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx512" && __builtin_cpu_supports("x86-64-v4") &&
      __builtin_cpu_supports("avx512bf16"))
    return &pointwise_avx512();
  if (name == "avx2" && __builtin_cpu_supports("x86-64-v3")) return &pointwise_avx2();
#endif
  return nullptr;
}

template <typename T>
const PointwiseOf<T>& part(const PointwiseKernels& kernels) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels.f32;
  } else {
    return kernels.bf16;
  }
}

class KernelTable : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = table(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
    EXPECT_STREQ(kernels_->name, GetParam());
  }

  // Calls function(type, kernels) for both element types and compares the tensors that it returns with
  // those of the portable table. Tables differ where one fuses a multiplication and an addition: a few
  // units of 2⁻²⁴. In bf16 such a difference may turn a rounding, up to 2⁻⁷ of that element; a few in 2¹⁷
  // elements are that near to the middle, which keeps the whole under the error of rounding itself.
  template <typename Function>
  void expect_near(const Function& function) {
    const auto compare = [&](auto type, at::ScalarType scalar) {
      using T = decltype(type);
      const Tensors got = function(part<T>(*kernels_), scalar);
      const Tensors expected = function(part<T>(pointwise_portable()), scalar);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(relative_error(got[i], expected[i]), scalar == at::kFloat ? 5e-7 : 0x1p-9)
            << "result " << i << (scalar == at::kFloat ? " in float" : " in bf16");
    };
    compare(float{}, at::kFloat);
    compare(Bf16{}, at::kBFloat16);
  }

  template <typename Function>
  void expect_same_bits(const Function& function) {
    const auto compare = [&](auto type, at::ScalarType scalar) {
      using T = decltype(type);
      const Tensors got = function(part<T>(*kernels_), scalar);
      const Tensors expected = function(part<T>(pointwise_portable()), scalar);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(same_bits(got[i], expected[i]))
            << "result " << i << (scalar == at::kFloat ? " in float" : " in bf16");
    };
    compare(float{}, at::kFloat);
    compare(Bf16{}, at::kBFloat16);
  }

  const PointwiseKernels* kernels_ = nullptr;
};

template <typename T>
T type_of(const PointwiseOf<T>&);

constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 31, 64, 100, 259};

TEST_P(KernelTable, Norm) {
  for (const int64_t width : kWidths)
    for (const bool rms : {false, true})
      for (const bool all : {false, true}) {
        if (width == 1 && !rms) continue;  // nothing is left of one number less its mean
        SCOPED_TRACE(testing::Message() << width << (rms ? " rms" : " layer") << (all ? " all" : ""));
        expect_near([&](const auto& kernels, at::ScalarType type) {
          using T = decltype(type_of(kernels));
          const int64_t rows = 3;
          const at::Tensor x = random_numbers({rows, width}, "x").to(type);
          const at::Tensor delta = random_numbers({rows, width}, "delta").to(type);
          const at::Tensor w = random_numbers({width}, "w").to(type);
          const at::Tensor b = random_numbers({width}, "b").to(type);
          const at::Tensor dy = random_numbers({rows, width}, "dy").to(type);
          const at::Tensor d_sum = random_numbers({rows, width}, "d_sum").to(type);
          const at::Tensor sum = x.clone(), y = x.clone(), dx = x.clone();
          const at::Tensor mean = at::zeros({rows}), rstd = at::zeros({rows});
          const at::Tensor d_weight = at::zeros({width}).fill_(1), d_bias = d_weight.clone();
          NormForward<T> forward;
          forward.rows = rows;
          forward.width = width;
          forward.rms = rms;
          forward.epsilon = 1e-5f;
          forward.x = elements<T>(x);
          forward.delta = all ? elements<T>(delta) : nullptr;
          forward.weight = elements<T>(w);
          forward.bias = all ? elements<T>(b) : nullptr;
          forward.sum = elements<T>(sum);
          forward.y = elements<T>(y);
          forward.mean = elements<float>(mean);
          forward.rstd = elements<float>(rstd);
          kernels.norm_forward(forward);
          NormBackward<T> backward;
          backward.rows = rows;
          backward.width = width;
          backward.rms = rms;
          backward.sum = elements<T>(sum);
          backward.dy = elements<T>(dy);
          backward.d_sum = all ? elements<T>(d_sum) : nullptr;
          backward.weight = elements<T>(w);
          backward.mean = elements<float>(mean);
          backward.rstd = elements<float>(rstd);
          backward.dx = elements<T>(dx);
          backward.d_weight = elements<float>(d_weight);
          backward.d_bias = all ? elements<float>(d_bias) : nullptr;
          kernels.norm_backward(backward);
          return Tensors{sum, y, rstd, dx, d_weight, d_bias};
        });
      }
}

TEST_P(KernelTable, Activations) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    expect_near([&](const auto& kernels, at::ScalarType type) {
      using T = decltype(type_of(kernels));
      const int64_t rows = 3;
      // Wide enough that both tails of the functions are met.
      const at::Tensor x = random_numbers({rows, 2 * width}, "x", 4).to(type);
      const at::Tensor bias = random_numbers({2 * width}, "bias").to(type);
      const at::Tensor dy = random_numbers({rows, 2 * width}, "dy").to(type);
      const at::Tensor plain = x.clone(), biased = x.clone(), d_plain = x.clone(), d_biased = dy.clone();
      const at::Tensor half = at::zeros({rows, width}, x.options()), d_both = x.clone();
      kernels.gelu_forward(rows, 2 * width, elements<T>(x), nullptr, elements<T>(plain));
      kernels.gelu_forward(rows, 2 * width, elements<T>(x), elements<T>(bias), elements<T>(biased));
      kernels.gelu_backward(rows, 2 * width, elements<T>(x), nullptr, elements<T>(dy),
                            elements<T>(d_plain));
      kernels.gelu_backward(rows, 2 * width, elements<T>(x), elements<T>(bias),
                            elements<T>(d_biased), elements<T>(d_biased));
      kernels.swiglu_forward(rows, width, elements<T>(x), elements<T>(half));
      kernels.swiglu_backward(rows, width, elements<T>(x), elements<T>(dy), elements<T>(d_both));
      return Tensors{plain, biased, d_plain, d_biased, half, d_both};
    });
  }
}

TEST_P(KernelTable, CrossEntropy) {
  for (const int64_t width : {1, 5, 16, 17, 100, 4095, 4096, 4097, 8200})
    for (const float z_loss : {0.0f, 0.01f}) {
      SCOPED_TRACE(width);
      expect_near([&](const auto& kernels, at::ScalarType type) {
        using T = decltype(type_of(kernels));
        // A range that lets the running maximum rise from block to block.
        const at::Tensor logits = random_numbers({width}, "logits", 3).to(type);
        logits[width - 1] = 20;
        const at::Tensor losses = at::zeros({4});
        int64_t next = 0;
        Tensors results;
        for (const int64_t target : {int64_t{0}, width - 1}) {
          const at::Tensor gradient = logits.clone();
          const CrossEntropyRow row =
              kernels.cross_entropy_statistics(width, elements<T>(gradient), target);
          kernels.cross_entropy_gradient(width, elements<T>(gradient), target, row.log_sum, 0.25f, z_loss);
          losses[next++] = row.log_sum;
          losses[next++] = row.target_logit;
          // The gradient at the target is a difference as well: compared with the scale.
          results.push_back(gradient.add(1));
        }
        results.push_back(losses);
        return results;
      });
    }
}

TEST_P(KernelTable, SumsAndCopies) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    expect_same_bits([&](const auto& kernels, at::ScalarType type) {
      using T = decltype(type_of(kernels));
      const at::Tensor a = random_numbers({5, width}, "a").to(type);
      const at::Tensor b = random_numbers({5, width}, "b").to(type);
      const at::Tensor sum = a.clone(), copy = b.clone(), scaled = a.clone();
      const at::Tensor columns = at::zeros({width}).fill_(0.1), total = at::zeros({5 * width}).fill_(0.3);
      kernels.add(5 * width, elements<T>(a), elements<T>(b), elements<T>(sum));
      kernels.add(5 * width, elements<T>(a), nullptr, elements<T>(copy));
      kernels.scale(5 * width, elements<T>(a), 0.3f, elements<T>(scaled));
      kernels.accumulate(5 * width, elements<T>(a), elements<float>(total));
      kernels.column_sums(5, width, elements<T>(a), width, elements<float>(columns));
      EXPECT_TRUE(same_bits(copy, a));
      return Tensors{sum, copy, scaled, total, columns};
    });
  }
}

TEST_P(KernelTable, Rotation) {
  for (const int64_t head_size : {2, 6, 32, 34, 48, 80, 144})
    expect_near([&](const auto& kernels, at::ScalarType type) {
      using T = decltype(type_of(kernels));
      const at::Tensor angles = random_numbers({head_size / 2}, "angles", 3).to(at::kFloat);
      const at::Tensor cosine = angles.cos(), sine = angles.sin();
      const at::Tensor x = random_numbers({3 * head_size}, "x").to(type);
      const at::Tensor there = x.clone();
      kernels.rotate(3, head_size, elements<T>(there), elements<float>(cosine),
                     elements<float>(sine), 1);
      const at::Tensor back = there.clone();
      kernels.rotate(3, head_size, elements<T>(back), elements<float>(cosine),
                     elements<float>(sine), -1);
      // Two roundings on the way.
      EXPECT_LE(relative_error(back, x), type == at::kFloat ? 2e-7 : 0x1p-8);
      EXPECT_GT(relative_error(there, x), 0.1);
      return Tensors{there, back};
    });
}

TEST_P(KernelTable, Optimizer) {
  for (const int64_t size : kWidths) {
    const auto run = [&](const PointwiseKernels& kernels) {
      Tensors state{random_numbers({size}, "g").to(at::kFloat), random_numbers({size}, "w").to(at::kFloat),
                    random_numbers({size}, "m").to(at::kFloat),
                    random_numbers({size}, "v").square().to(at::kFloat)};
      kernels.adamw({.rate = 0.01, .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1}, size,
                    elements<float>(state[0]), elements<float>(state[1]), elements<float>(state[2]),
                    elements<float>(state[3]));
      return state;
    };
    const Tensors got = run(*kernels_), expected = run(pointwise_portable());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
    const at::Tensor x = random_numbers({size}, "x").to(at::kFloat);
    const double sum = pointwise_portable().sum_of_squares(size, elements<float>(x));
    EXPECT_NEAR(kernels_->sum_of_squares(size, elements<float>(x)), sum, 1e-6 * sum);
  }
}

TEST_P(KernelTable, SplittingAFloatLosesNothing) {
  // Every pattern of the upper half with lower halves below, at and above the middle.
  const int64_t size = int64_t{5} << 16;
  const at::Tensor x = at::zeros({size}), joined = at::zeros({size});
  const at::Tensor weights = at::zeros({size}, at::kBFloat16), low = at::zeros({size}, at::kShort);
  auto* bits = static_cast<uint32_t*>(x.data_ptr());
  for (int64_t i = 0; i < size; ++i) {
    constexpr uint32_t kLower[] = {0, 0x7fff, 0x8000, 0x8001, 0xffff};
    bits[i] = static_cast<uint32_t>(i / 5) << 16 | kLower[i % 5];
  }
  kernels_->split_master(size, elements<float>(x), elements<Bf16>(weights), elements<uint16_t>(low));
  kernels_->join_master(size, elements<Bf16>(weights), elements<uint16_t>(low), elements<float>(joined));
  EXPECT_TRUE(same_bits(joined, x));
  int64_t wrong = 0;
  for (int64_t i = 0; i < size; ++i) {
    // Bit patterns of one sign are in the order of the numbers' sizes, so the nearest pattern of the upper
    // half is the nearest bf16; halves go away from zero.
    const uint32_t exponent = bits[i] >> 23 & 0xff, upper = bits[i] >> 16;
    const uint32_t expected = upper + ((bits[i] & 0xffff) >= 0x8000 ? 1 : 0);
    if (exponent != 0xff) wrong += elements<Bf16>(weights)[i].bits != expected;
  }
  EXPECT_EQ(wrong, 0);

  // Nothing beyond the end is written, and the lower halves may be left out.
  for (const int64_t count : {1, 15, 16, 17, 31}) {
    const at::Tensor part = at::zeros({40}, at::kBFloat16), rest = at::zeros({40}, at::kShort);
    kernels_->split_master(count, elements<float>(x) + 1000, elements<Bf16>(part), elements<uint16_t>(rest));
    const at::Tensor alone = at::zeros({40}, at::kBFloat16);
    kernels_->split_master(count, elements<float>(x) + 1000, elements<Bf16>(alone), nullptr);
    EXPECT_TRUE(same_bits(part, alone));
    EXPECT_TRUE(same_bits(part.narrow(0, 0, count), weights.narrow(0, 1000, count)));
    EXPECT_TRUE(same_bits(rest.narrow(0, 0, count), low.narrow(0, 1000, count)));
    EXPECT_EQ(rest.narrow(0, count, 40 - count).ne(0).sum().item<int64_t>(), 0);
    EXPECT_EQ(part.view(at::kShort).narrow(0, count, 40 - count).ne(0).sum().item<int64_t>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, KernelTable, testing::Values("avx2", "avx512"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sauropod::ops

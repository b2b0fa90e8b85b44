// The model and the optimizer together learn one batch by heart.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/random.h"
#include "model/transformer.h"
#include "parallel/optimizer.h"

namespace sauropod::train {
namespace {

class Overfit : public testing::TestWithParam<std::pair<const char*, model::Precision>> {};

TEST_P(Overfit, OneBatch) {
  model::ModelOptions options;
  options.family = GetParam().first;
  options.layers = 2;
  options.hidden = 64;
  options.heads = 4;
  options.context = 32;
  options.vocabulary = 97;
  options.resolve(0);
  model::ParameterMemory memory(model::parameter_table(options), GetParam().second, at::kCPU, true);
  parallel::Optimizer optimizer(memory, {.weight_decay = 0});
  memory.initialize(1);
  const model::Transformer model(options, memory);
  const at::Tensor ids = at::empty({4, 33}, at::kInt);
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.data_ptr<int32_t>()[i] =
        static_cast<int32_t>(base::random_bits(1, static_cast<uint64_t>(i)) % 97);
  const model::Batch batch{ids.narrow(1, 0, 32).contiguous(), ids.narrow(1, 1, 32).contiguous(), {}};

  double loss = 0;
  int steps = 0;
  do {
    const auto result = model.loss(batch, {.scale = 1.0 / 128});
    torch::autograd::backward({result.loss});
    loss = result.loss.item<double>();
    if (steps == 0) { EXPECT_GT(loss, 4); }
    optimizer.update(3e-3, optimizer.gradient_norm());
  } while (loss >= 0.05 && ++steps < 300);
  EXPECT_LT(loss, 0.05) << "after " << steps << " steps";
}

INSTANTIATE_TEST_SUITE_P(
    All, Overfit,
    testing::Values(std::pair{"jurassic", model::Precision::fp32},
                    std::pair{"jurassic", model::Precision::bf16},
                    std::pair{"llama", model::Precision::fp32},
                    std::pair{"llama", model::Precision::bf16}),
    [](const auto& info) {
      return info.param.first + std::string("_") + std::string(precision_name(info.param.second));
    });

}  // namespace
}  // namespace sauropod::train

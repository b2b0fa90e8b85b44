// The whole model: gradients against finite differences, recomputation, chunks, documents, the first
// loss, evaluation, and the largest shapes on the meta device.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "model/transformer.h"
#include "ops/adamw.h"

namespace sauropod::model {
namespace {

at::Tensor integers(const std::vector<int64_t>& shape, std::string_view name, int64_t below) {
  const at::Tensor x = at::empty(shape, at::kInt);
  const uint64_t key = base::random_key(11, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<int32_t>()[i] = static_cast<int32_t>(
        base::random_bits(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(below));
  return x;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.detach().to(at::kDouble);
  return a.detach().to(at::kDouble).sub(wide).norm().item<double>() / wide.norm().item<double>();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

ModelOptions small(std::string family) {
  ModelOptions options;
  options.family = std::move(family);
  options.layers = 2;
  options.hidden = 24;
  options.heads = 4;
  options.kv_heads = options.family == "llama" ? 2 : 0;
  options.head_size = 8;
  options.mlp_hidden = 40;
  options.context = 100;
  options.vocabulary = 41;
  options.tied_embeddings = options.family != "llama";
  options.resolve(0);
  return options;
}

Batch batch_of(const ModelOptions& options, int64_t sequences, int64_t length) {
  return {integers({sequences, length}, "tokens", options.vocabulary),
          integers({sequences, length}, "targets", options.vocabulary), {}};
}

// Documents that begin at the given positions of every sequence.
at::Tensor starts(int64_t sequences, int64_t length, const std::vector<int64_t>& begins) {
  const at::Tensor first = at::zeros({sequences, length}, at::kInt);
  for (const int64_t begin : begins)
    first.narrow(1, begin, length - begin).fill_(begin);
  return first;
}

// Weights large enough that no part of the model is too small to be seen, and exact in bf16, so that
// every precision has the same.
void randomize(ParameterMemory& memory) {
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const Parameter& p = memory.table()[i];
    const at::Tensor values = memory.view(memory.weights(), i).view({-1});
    const uint64_t key = base::random_key(5, p.name);
    const double deviation = p.shape.size() == 2 ? 1 / std::sqrt(p.shape[1]) : 0.3;
    const at::Tensor wide = at::empty({p.size()}, at::kDouble);
    for (int64_t j = 0; j < p.size(); ++j)
      wide.data_ptr<double>()[j] = (p.initial == Initial::ones ? 1 : 0) +
                                   deviation * base::random_normal(key, static_cast<uint64_t>(j));
    values.copy_(wide.to(at::kBFloat16));
  }
}

struct Step {
  at::Tensor loss, nats, gradients;
};

// Loss and all gradients of one batch from given weights. `change`: every weight is made larger or smaller
// by that fraction first.
Step step(const ModelOptions& options, Precision precision, const Batch& batch,
          Recompute recompute = Recompute::none, int64_t chunk = 0, double change = 0) {
  ParameterMemory memory(parameter_table(options), precision, at::kCPU, true);
  randomize(memory);
  if (change != 0)
    for (int64_t i = 0; i < memory.flat_size(); ++i)
      memory.weights().data_ptr<double>()[i] *=
          base::random_bits(6, static_cast<uint64_t>(i)) % 2 == 0 ? 1 + change : 1 - change;
  const Transformer model(options, memory, recompute);
  const ops::CrossEntropy loss = model.loss(batch, {.scale = 0.01, .chunk = chunk});
  torch::autograd::backward({loss.loss});
  return {loss.loss.detach(), loss.nats, memory.gradients().clone()};
}

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, GradientsEqualFiniteDifferences) {
  const ModelOptions options = small(GetParam());
  for (const bool documents : {false, true}) {
    Batch batch = batch_of(options, 2, 7);
    batch.targets[1][2] = -1;
    if (documents) batch.first = starts(2, 7, {2, 5});
    ParameterMemory memory(parameter_table(options), Precision::fp64, at::kCPU, true);
    randomize(memory);
    const Transformer model(options, memory);
    const ops::CrossEntropyOptions training{.scale = 0.1, .z_loss = 0.01};
    torch::autograd::backward({model.loss(batch, training).loss});
    ops::CrossEntropyOptions plain = training;
    plain.gradients = false;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < memory.table().size(); ++i) {
      const Parameter& p = memory.table()[i];
      auto* values = memory.view(memory.weights(), i).data_ptr<double>();
      const auto* gradient = memory.view(memory.gradients(), i).data_ptr<double>();
      double largest = 0;
      for (int64_t j = 0; j < p.size(); ++j) largest = std::max(largest, std::abs(gradient[j]));
      // The bias of the keys adds the same to all scores of a query.
      if (p.name.ends_with("key.bias") && !documents) {
        EXPECT_LT(largest, 1e-14) << p.name;
      } else if (!p.name.ends_with("key.bias")) {
        EXPECT_GT(largest, 1e-5) << p.name;
      }
      for (uint64_t sample = 0; sample < 4; ++sample) {
        const auto j = static_cast<int64_t>(
            base::random_bits(base::random_key(1, p.name), sample) % static_cast<uint64_t>(p.size()));
        constexpr double kStep = 1e-5;
        const double kept = values[j];
        values[j] = kept + kStep;
        const double above = model.loss(batch, plain).loss.item<double>();
        values[j] = kept - kStep;
        const double below = model.loss(batch, plain).loss.item<double>();
        values[j] = kept;
        // Rounding: a loss of about 5, 1e-15 / 1e-5 = 1e-10; truncation 1e-10 of the third derivative.
        EXPECT_NEAR((above - below) / (2 * kStep), gradient[j], 2e-9) << p.name << '[' << j << ']';
      }
    }
  }
}

TEST_P(Family, PrecisionsAgree) {
  const ModelOptions options = small(GetParam());
  for (const bool documents : {false, true}) {
    Batch batch = batch_of(options, 2, 67);
    if (documents) batch.first = starts(2, 67, {2, 5, 64});
    const Step exact = step(options, Precision::fp64, batch);
    const Step single = step(options, Precision::fp32, batch);
    const Step half = step(options, Precision::bf16, batch);
    // Float: two blocks of some ten sums in sequence, 2⁻²⁴ √67 each.
    EXPECT_LE(relative_error(single.loss, exact.loss), 1e-6);
    EXPECT_LE(relative_error(single.gradients, exact.gradients), 1e-5);
    // bf16: what the model makes of a relative change of 2⁻⁹ in all its weights is its condition. One
    // rounding changes a tensor by 0.8 · 2⁻⁹ of its norm (operations_test.cpp), and a step rounds four of
    // them at every matrix (what goes in and what comes out, forward and backward): √4 · 0.8 times that
    // change, a little less than the two allowed.
    const Step shifted = step(options, Precision::fp64, batch, Recompute::none, 0, 0x1p-9);
    EXPECT_LE(relative_error(half.loss, exact.loss), 0x1p-8);
    const double condition = relative_error(shifted.gradients, exact.gradients);
    EXPECT_LE(relative_error(half.gradients, exact.gradients), 2 * condition);
    EXPECT_LE(condition, 0.03);
  }
}

TEST_P(Family, RecomputationGivesTheSameBits) {
  const ModelOptions options = small(GetParam());
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64})
    for (const bool documents : {false, true}) {
      Batch batch = batch_of(options, 3, 70);
      if (documents) batch.first = starts(3, 70, {30, 65});
      const Step none = step(options, precision, batch, Recompute::none);
      ASSERT_GT(none.gradients.norm().item<double>(), 0);
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        const Step other = step(options, precision, batch, recompute);
        EXPECT_TRUE(same_bits(other.loss, none.loss)) << precision_name(precision);
        EXPECT_TRUE(same_bits(other.gradients, none.gradients)) << precision_name(precision);
      }
    }
}

TEST_P(Family, ChunkedLossEqualsPlainLoss) {
  const ModelOptions options = small(GetParam());
  const Batch batch = batch_of(options, 2, 30);
  const Step plain = step(options, Precision::fp64, batch, Recompute::none, 60);
  for (const int64_t chunk : {1, 7, 32}) {
    const Step chunked = step(options, Precision::fp64, batch, Recompute::none, chunk);
    // Sums in another order, in double.
    EXPECT_LE(relative_error(chunked.loss, plain.loss), 1e-14);
    EXPECT_LE(relative_error(chunked.gradients, plain.gradients), 1e-13);
  }
}

TEST_P(Family, PackedDocumentsGiveTheLossesOfEachAlone) {
  const ModelOptions options = small(GetParam());
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    Batch packed = batch_of(options, 1, 80);
    packed.first = starts(1, 80, {50});
    const auto part = [&](int64_t begin, int64_t length) {
      return Batch{packed.tokens.narrow(1, begin, length).contiguous(),
                   packed.targets.narrow(1, begin, length).contiguous(), {}};
    };
    const Step whole = step(options, precision, packed);
    const Step first = step(options, precision, part(0, 50)), second = step(options, precision, part(50, 30));
    // Equal sums in another order; in bf16 a sum near the middle may round the other way in any of the
    // two blocks' ten operations.
    const double tolerance = precision == Precision::fp64   ? 1e-12
                             : precision == Precision::fp32 ? 2e-6
                                                            : 0.01;
    EXPECT_LE(relative_error(whole.nats, at::cat({first.nats, second.nats})), tolerance);
    EXPECT_LE(relative_error(whole.gradients, first.gradients.add(second.gradients)), tolerance);
    // Without the mask the second document sees the first.
    const Step mixed = step(options, precision, {packed.tokens, packed.targets, {}});
    EXPECT_GT(relative_error(mixed.nats, whole.nats), 0.03);
  }
}

TEST_P(Family, FirstLoss) {
  ModelOptions options = small(GetParam());
  options.hidden = 128;
  options.head_size = 32;
  options.mlp_hidden = 512;
  options.vocabulary = 2000;
  for (const bool tied : {true, false}) {
    options.tied_embeddings = tied;
    ParameterMemory memory(parameter_table(options), Precision::fp32, at::kCPU, false);
    memory.initialize(1);
    const Transformer model(options, memory);
    const at::NoGradGuard no_grad;
    const Batch batch = batch_of(options, 16, 64);
    const double loss =
        model.loss(batch, {.scale = 1.0 / (16 * 64), .gradients = false}).loss.item<double>();
    const double sigma = initial_deviation(options);
    const double expected = std::log(2000.0) + sigma * sigma * 128 / 2;
    EXPECT_NEAR(loss, expected, 0.005 * expected) << (tied ? "tied" : "untied");
  }
}

TEST_P(Family, EvaluationComputesNoGradients) {
  const ModelOptions options = small(GetParam());
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    ParameterMemory memory(parameter_table(options), precision, at::kCPU, true);
    randomize(memory);
    memory.gradients().fill_(7);
    const Transformer model(options, memory, Recompute::full);
    const Batch batch = batch_of(options, 2, 9);
    const at::NoGradGuard no_grad;
    const ops::CrossEntropy loss = model.loss(batch, {.gradients = false});
    EXPECT_EQ(loss.loss.grad_fn(), nullptr);
    EXPECT_EQ(model.states(batch).grad_fn(), nullptr);
    EXPECT_TRUE(memory.gradients().eq(7).all().item<bool>());
    // The logits are those whose loss it is.
    const at::Tensor logits = model.logits(model.states(batch)).to(at::kDouble);
    const at::Tensor expected =
        logits.logsumexp(at::IntArrayRef{1})
            .sub(logits.gather(1, batch.targets.view({-1, 1}).to(at::kLong)).squeeze(1));
    EXPECT_LE(relative_error(loss.nats, expected), 1e-6);
  }
}

TEST_P(Family, RefusesItemsOutsideTheVocabularyAndLongSequences) {
  const ModelOptions options = small(GetParam());
  ParameterMemory memory(parameter_table(options), Precision::fp32, at::kCPU, false);
  memory.initialize(1);
  const Transformer model(options, memory);
  const at::NoGradGuard no_grad;
  Batch batch = batch_of(options, 1, 5);
  batch.tokens[0][3] = 41;
  EXPECT_THROW(model.states(batch), base::Error);
  batch = batch_of(options, 1, 5);
  batch.targets[0][4] = 41;
  EXPECT_THROW(model.loss(batch, {.gradients = false}), base::Error);
  EXPECT_THROW(model.states(batch_of(options, 1, 101)), base::Bug);
}

INSTANTIATE_TEST_SUITE_P(Both, Family, testing::Values("jurassic", "llama"),
                         [](const auto& info) { return std::string(info.param); });

// One step of the published models, shapes only.
TEST(MetaDevice, OneStepOfTheLargestModels) {
  struct Shape {
    const char* family;
    int64_t layers, hidden, heads, kv_heads;
  };
  for (const Shape& s : {Shape{"jurassic", 32, 4096, 32, 0}, Shape{"jurassic", 76, 13824, 96, 0},
                         Shape{"llama", 80, 8192, 64, 8}})
    for (const bool documents : {false, true}) {
      ModelOptions options;
      options.family = s.family;
      options.layers = s.layers;
      options.hidden = s.hidden;
      options.heads = s.heads;
      options.kv_heads = s.kv_heads;
      options.vocabulary = 262144;
      options.context = 2048;
      options.resolve(0);
      ParameterMemory memory(parameter_table(options), Precision::bf16, at::kMeta, true);
      memory.keep_lower_halves({{0, memory.flat_size(), 0}});
      memory.initialize(1);
      const Transformer model(options, memory, documents ? Recompute::full : Recompute::selective);
      const auto on = at::TensorOptions().dtype(at::kInt).device(at::kMeta);
      Batch batch{at::empty({2, 2048}, on), at::empty({2, 2048}, on), {}};
      if (documents) batch.first = at::empty({2, 2048}, on);
      const ops::CrossEntropy loss = model.loss(batch, {.scale = 1.0 / 4096, .z_loss = 1e-4});
      EXPECT_EQ(loss.nats.sizes().vec(), std::vector<int64_t>{4096});
      torch::autograd::backward({loss.loss});
      const ops::AdamWBuffers buffers{memory.gradients(), memory.weights(), memory.low(),
                                      at::zeros_like(memory.gradients()),
                                      at::zeros_like(memory.gradients())};
      EXPECT_EQ(ops::sum_of_squares(memory.gradients()), 0);
      for (const auto& range : memory.ranges())
        ops::adamw({.rate = 1e-4}, range.begin, range.end, buffers);
      EXPECT_GE(memory.flat_size(), parameter_count(memory.table()));
    }
}

}  // namespace
}  // namespace sauropod::model

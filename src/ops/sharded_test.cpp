// The loss and the embedding on parts of the vocabulary, over ranks that are threads, against the whole.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "comm/test_support.h"
#include "comm/test_threads.h"
#include "comm/world.h"
#include "ops/collective.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kVocabulary = 37, kHidden = 16;

// Rows of each rank: equal and unequal, one, none; the one with none first, in the middle and last.
const std::vector<std::vector<int64_t>>& splits() {
  static const std::vector<std::vector<int64_t>> all{
      {37}, {19, 18}, {0, 37}, {13, 0, 24}, {36, 1, 0}, {10, 10, 10, 7}, {1, 15, 20, 1}};
  return all;
}

std::string name_of(const std::vector<int64_t>& split) {
  std::string name;
  for (const int64_t rows : split) name += (name.empty() ? "" : "_") + std::to_string(rows);
  return name;
}

class Shards : public testing::TestWithParam<std::vector<int64_t>> {
 protected:
  int ranks() const { return static_cast<int>(GetParam().size()); }
  int64_t rows(int rank) const { return GetParam()[static_cast<size_t>(rank)]; }
  int64_t first(int rank) const { return std::accumulate(GetParam().begin(), GetParam().begin() + rank, int64_t{0}); }

  // The first and the last item of each part, others, and the last of all.
  at::Tensor items(bool left_out) const {
    std::vector<int32_t> list;
    for (int rank = 0; rank < ranks(); ++rank)
      if (rows(rank) > 0)
        for (const int64_t item : {first(rank), first(rank) + rows(rank) - 1, first(rank) + rows(rank) / 2}) {
          list.push_back(static_cast<int32_t>(item));
          if (left_out) list.push_back(-1);
        }
    while (list.size() < 24) list.push_back(static_cast<int32_t>(list.size() * 11 % kVocabulary));
    const at::Tensor x = at::empty({static_cast<int64_t>(list.size())}, at::kInt);
    std::copy(list.begin(), list.end(), x.data_ptr<int32_t>());
    return x;
  }

  Weight part(const at::Tensor& whole, int rank) const {
    const at::Tensor value = whole.narrow(0, first(rank), rows(rank)).clone();
    return {value, at::zeros(value.sizes(), value.options().dtype(gradient_type(value.scalar_type())))};
  }
};

struct LossResults {
  at::Tensor loss, nats, dx, dw;
};

class ShardedLoss : public Shards {
 protected:
  LossResults whole(at::ScalarType type, const CrossEntropyOptions& options) const {
    const at::Tensor x = random_numbers({targets_.size(0), kHidden}, "x").to(type).requires_grad_(true);
    const at::Tensor w = random_numbers({kVocabulary, kHidden}, "w", 0.5).to(type);
    const Weight weight{w, at::zeros(w.sizes(), w.options().dtype(gradient_type(type)))};
    const CrossEntropy result = linear_cross_entropy(x, weight, targets_, options);
    if (options.gradients) torch::autograd::backward({result.loss});
    return {result.loss.detach(), result.nats, x.grad(), weight.gradient};
  }

  // By rank.
  std::vector<LossResults> parts(at::ScalarType type, const CrossEntropyOptions& whole_options) const {
    std::vector<LossResults> results(GetParam().size());
    comm::test::run_threads(ranks(), [&](comm::Communicator& group) {
      const at::Tensor x = random_numbers({targets_.size(0), kHidden}, "x").to(type).requires_grad_(true);
      const Weight weight = part(random_numbers({kVocabulary, kHidden}, "w", 0.5).to(type), group.rank());
      CrossEntropyOptions options = whole_options;
      options.first_item = first(group.rank());
      options.group = &group;
      options.vocabulary = kVocabulary;
      const CrossEntropy result =
          linear_cross_entropy(copy_to_group(x, group, "states"), weight, targets_, options);
      if (options.gradients) torch::autograd::backward({result.loss});
      results[static_cast<size_t>(group.rank())] = {result.loss.detach(), result.nats, x.grad(), weight.gradient};
    });
    return results;
  }

  void compare(at::ScalarType type, const CrossEntropyOptions& options, double tolerance) const {
    const LossResults exact = whole(at::kDouble, options);
    const std::vector<LossResults> got = parts(type, options);
    Tensors dw;
    for (const LossResults& rank : got) {
      EXPECT_TRUE(same_bits(rank.loss, got[0].loss));
      EXPECT_TRUE(same_bits(rank.nats, got[0].nats));
      EXPECT_LE(relative_error(rank.loss, exact.loss), tolerance);
      EXPECT_LE(relative_error(rank.nats, exact.nats), tolerance);
      EXPECT_TRUE(rank.nats.masked_select(targets_.lt(0)).eq(0).all().item<bool>());
      if (options.gradients) {
        EXPECT_TRUE(same_bits(rank.dx, got[0].dx));
        EXPECT_LE(relative_error(rank.dx, exact.dx), tolerance);
      }
      dw.push_back(rank.dw);
    }
    EXPECT_LE(relative_error(at::cat(dw), exact.dw), tolerance);
    for (size_t i = 0, first = 0; i < dw.size(); first += static_cast<size_t>(dw[i++].size(0)))
      if (dw[i].size(0) > 0) {
        EXPECT_LE(relative_error(dw[i], exact.dw.narrow(0, static_cast<int64_t>(first), dw[i].size(0))), tolerance)
            << "part " << i;
      }
  }

  const at::Tensor targets_ = items(true);
};

TEST_P(ShardedLoss, EqualsTheWholeInDouble) {
  for (const double z_loss : {0.0, 0.01})
    for (const int64_t chunk : {0, 1, 7})
      for (const bool gradients : {true, false}) {
        SCOPED_TRACE(testing::Message() << "z-loss " << z_loss << ", chunk " << chunk << ", gradients " << gradients);
        compare(at::kDouble, {.scale = 1.0 / 24, .z_loss = z_loss, .gradients = gradients, .chunk = chunk}, 1e-12);
      }
}

// Tolerances are those of operations_test.cpp. In bf16 beside the three roundings of the whole: each rank's
// part of the gradient of x, and their sum.
TEST_P(ShardedLoss, KernelsAgreeWithDouble) {
  for (const double z_loss : {0.0, 0.01})
    for (const int64_t chunk : {0, 7}) {
      SCOPED_TRACE(testing::Message() << "z-loss " << z_loss << ", chunk " << chunk);
      const CrossEntropyOptions options{.scale = 1.0 / 24, .z_loss = z_loss, .chunk = chunk};
      compare(at::kFloat, options, 4e-6);
      compare(at::kBFloat16, options, 1.2 * 0x1p-9 * std::sqrt(5));
    }
}

// Every rank sees the fault before it calls any other, and nothing is added to a gradient.
TEST_P(ShardedLoss, RefusesTargetsOutsideTheWholeVocabularyOnEveryRank) {
  comm::test::run_threads(ranks(), [&](comm::Communicator& group) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Weight weight = part(random_numbers({kVocabulary, kHidden}, "w").to(type), group.rank());
      const at::Tensor x = random_numbers({3, kHidden}, "x").to(type), targets = at::zeros({3}, at::kInt);
      targets[2] = kVocabulary;
      const CrossEntropyOptions options{
          .chunk = 1, .first_item = first(group.rank()), .group = &group, .vocabulary = kVocabulary};
      EXPECT_THROW(linear_cross_entropy(x, weight, targets, options), base::Error);
      EXPECT_EQ(weight.gradient.abs().sum().item<double>(), 0);
    }
  });
}

// A logit that is no number or infinite on one rank is seen by all.
TEST_P(ShardedLoss, NanPropagatesToEveryRank) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    comm::test::run_threads(ranks(), [&](comm::Communicator& group) {
      at::Tensor w = random_numbers({kVocabulary, kHidden}, "w").to(type);
      w[kVocabulary - 1].fill_(std::nan(""));
      const Weight weight = part(w, group.rank());
      const CrossEntropy result = linear_cross_entropy(
          random_numbers({2, kHidden}, "x").to(type), weight, at::zeros({2}, at::kInt),
          {.first_item = first(group.rank()), .group = &group, .vocabulary = kVocabulary});
      EXPECT_TRUE(result.loss.isnan().item<bool>());
      if (weight.gradient.size(0) > 0) { EXPECT_TRUE(weight.gradient.isnan().all().item<bool>()); }
    });
}

INSTANTIATE_TEST_SUITE_P(Of, ShardedLoss, testing::ValuesIn(splits()),
                         [](const auto& info) { return name_of(info.param); });

// A group of one is the whole, bit for bit.
TEST(GroupOfOne, GivesTheSameBitsOfTheLoss) {
  const at::Tensor targets = at::full({9}, 36, at::kInt);
  targets[3] = -1;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    comm::test::run_threads(1, [&](comm::Communicator& group) {
      const auto run = [&](bool with_group) {
        const at::Tensor x = random_numbers({9, kHidden}, "x").to(type).requires_grad_(true);
        const at::Tensor w = random_numbers({kVocabulary, kHidden}, "w", 0.5).to(type);
        const Weight weight{w, at::zeros(w.sizes(), w.options().dtype(gradient_type(type)))};
        CrossEntropyOptions options{.scale = 1.0 / 9, .z_loss = 0.01, .chunk = 4};
        if (with_group) options.group = &group;
        const CrossEntropy result = linear_cross_entropy(x, weight, targets, options);
        torch::autograd::backward({result.loss});
        return Tensors{result.loss, result.nats, x.grad(), weight.gradient};
      };
      const Tensors alone = run(false), with_group = run(true);
      for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(with_group[i], alone[i])) << i;
    });
}

TEST(ShardedLossChunks, AreTheSameOnAllRanks) {
  // Parts whose own sizes would call for 1,024 and for 64 tokens at once, on the meta device.
  const int64_t vocabulary = 1 << 20, tokens = 2048;
  std::vector<std::vector<comm::FakeCall>> calls;
  for (const int rank : {0, 1, 2}) {
    const auto world = comm::World::fake(rank, 3);
    const auto group = world->make_group("tensor", {0, 1, 2});
    const int64_t sizes[] = {1 << 10, vocabulary - (1 << 10), 0}, firsts[] = {0, 1 << 10, vocabulary};
    const auto meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor x = at::empty({tokens, kHidden}, meta).requires_grad_(true);
    const Weight weight{at::empty({sizes[rank], kHidden}, meta), at::empty({sizes[rank], kHidden}, meta)};
    const CrossEntropy result = linear_cross_entropy(
        copy_to_group(x, *group, "states"), weight, at::empty({tokens}, meta.dtype(at::kInt)),
        {.z_loss = 0.1, .first_item = firsts[rank], .group = group.get(), .vocabulary = vocabulary});
    torch::autograd::backward({result.loss});
    EXPECT_EQ(result.nats.sizes(), (std::vector<int64_t>{tokens}));
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    calls.push_back(world->fake_calls());
  }
  const int64_t chunk = default_chunk(tokens, vocabulary / 3 + 1, 4);
  EXPECT_EQ(static_cast<int64_t>(calls[0].size()), (tokens + chunk - 1) / chunk + 1);
  for (const auto& of_rank : calls) {
    ASSERT_EQ(of_rank.size(), calls[0].size());
    for (size_t i = 0; i < of_rank.size(); ++i) {
      EXPECT_EQ(of_rank[i].label, calls[0][i].label);
      EXPECT_EQ(of_rank[i].bytes, calls[0][i].bytes);
    }
  }
  EXPECT_EQ(calls[0].back().label, "states gradient");
}

// Ranks that are processes, through the backend that they train with.
TEST(ShardedLossOverProcesses, EqualsTheWhole) {
  comm::test::run_ranks(3, [](comm::World& world) {
    const auto group = world.make_group("tensor", {0, 1, 2});
    const int64_t first = std::array<int64_t, 3>{0, 20, 21}[static_cast<size_t>(group->rank())];
    const int64_t rows = std::array<int64_t, 3>{20, 1, 16}[static_cast<size_t>(group->rank())];
    const at::Tensor values = random_numbers({kVocabulary, kHidden}, "w", 0.5);
    const at::Tensor targets = at::full({5}, 20, at::kInt);
    targets[0] = 0;
    targets[4] = 36;
    for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 4e-6}}) {
      const auto run = [&, type = type](const Weight& weight, CrossEntropyOptions options) {
        options.z_loss = 0.01;
        options.chunk = 2;
        const at::Tensor x = random_numbers({5, kHidden}, "x").to(weight.value.scalar_type()).requires_grad_(true);
        const at::Tensor copy = options.group == nullptr ? x : copy_to_group(x, *options.group, "states");
        const CrossEntropy result = linear_cross_entropy(copy, weight, targets, options);
        torch::autograd::backward({result.loss});
        return Tensors{result.loss, result.nats, x.grad(), weight.gradient};
      };
      Tensors expected = run({values, at::zeros(values.sizes(), at::kDouble)}, {});
      expected[3] = expected[3].narrow(0, first, rows);
      const at::Tensor mine = values.narrow(0, first, rows).to(type).clone();
      const Tensors got = run({mine, at::zeros(mine.sizes(), type)},
                              {.first_item = first, .group = group.get(), .vocabulary = kVocabulary});
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(relative_error(got[i], expected[i]), tolerance) << i;
    }
  });
}

class ShardedEmbedding : public Shards {};

// Of each row all parts but one are zeros, and the gradient of a row is formed as in the whole: the same bits.
TEST_P(ShardedEmbedding, GivesTheSameBitsAsTheWhole) {
  const at::Tensor tokens = items(false).view({2, -1});
  const int64_t length = tokens.size(1);
  for (const bool with_positions : {false, true})
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << type << (with_positions ? " with positions" : ""));
      const at::Tensor table = random_numbers({kVocabulary, kHidden}, "tokens").to(type);
      const at::Tensor places = random_numbers({length, kHidden}, "places").to(type);
      const at::Tensor dx = random_numbers({2 * length, kHidden}, "dx").to(type);
      const auto weight_of = [&](const at::Tensor& value) {
        return Weight{value, at::zeros(value.sizes(), value.options().dtype(gradient_type(type)))};
      };
      const Weight whole = weight_of(table), whole_places = with_positions ? weight_of(places) : Weight{};
      const at::Tensor expected = embedding(tokens, {}, whole, whole_places);
      torch::autograd::backward({expected}, {dx});
      comm::test::run_threads(ranks(), [&](comm::Communicator& group) {
        const Weight mine = part(table, group.rank());
        const Weight my_places = with_positions && group.rank() == 0 ? weight_of(places) : Weight{};
        const at::Tensor x = reduce_from_group(
            embedding(tokens, {}, mine, my_places, first(group.rank()), kVocabulary), group, "embedding");
        EXPECT_TRUE(same_bits(x, expected));
        torch::autograd::backward({x}, {dx});
        if (rows(group.rank()) > 0) {
          EXPECT_TRUE(same_bits(mine.gradient,
                                whole.gradient.narrow(0, first(group.rank()), rows(group.rank()))));
        }
        if (my_places.defined()) { EXPECT_TRUE(same_bits(my_places.gradient, whole_places.gradient)); }
      });
    }
}

TEST_P(ShardedEmbedding, RefusesIdsOutsideTheWholeVocabulary) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (int rank = 0; rank < ranks(); ++rank) {
      const Weight mine = part(random_numbers({kVocabulary, kHidden}, "tokens").to(type), rank);
      for (const int64_t bad : {int64_t{-1}, kVocabulary})
        EXPECT_THROW(embedding(at::full({1, 2}, bad, at::kInt), {}, mine, {}, first(rank), kVocabulary), base::Error);
      EXPECT_NO_THROW(embedding(at::full({1, 2}, kVocabulary - 1, at::kInt), {}, mine, {}, first(rank), kVocabulary));
    }
}

TEST_P(ShardedEmbedding, WorksOnTheMetaDevice) {
  const Weight mine{at::empty({rows(0), kHidden}, at::kMeta), at::empty({rows(0), kHidden}, at::kMeta)};
  const at::Tensor tokens = at::empty({2, 5}, at::TensorOptions().device(at::kMeta).dtype(at::kInt));
  const at::Tensor x = embedding(tokens, {}, mine, {}, 0, kVocabulary);
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{10, kHidden}));
  torch::autograd::backward({x}, {at::empty({10, kHidden}, at::kMeta)});
}

INSTANTIATE_TEST_SUITE_P(Of, ShardedEmbedding, testing::ValuesIn(splits()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace sauropod::ops

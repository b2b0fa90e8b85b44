// The differentiable collectives, over ranks that are threads: finite differences, a block in parts against the
// whole one, recomputation, memory, the meta device.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "comm/test_threads.h"
#include "comm/world.h"
#include "ops/collective.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/test_support.h"

namespace sauropod::ops {
namespace {

constexpr int64_t kWidth = 3;
enum class Which { copy, reduce, gather, reduce_scatter };

at::Tensor apply(Which which, const at::Tensor& x, comm::Communicator& group) {
  switch (which) {
    case Which::copy: return copy_to_group(x, group, "copy");
    case Which::reduce: return reduce_from_group(x, group, "reduce");
    case Which::gather: return gather_rows(x, group, "gather");
    case Which::reduce_scatter: return reduce_scatter_rows(x, group, "scatter");
  }
  return {};
}

class Collective : public testing::TestWithParam<std::tuple<Which, int>> {
 protected:
  Which which() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  // What all ranks give is the same to start with, and what all get.
  bool same_input() const { return which() == Which::copy; }
  bool same_output() const { return which() == Which::reduce; }

  at::Tensor input(int rank) const {
    return random_numbers({2 * size(), kWidth}, same_input() ? "x" : "x" + std::to_string(rank));
  }
  // This rank's part of the model's one loss, ½ Σ c y²; where all hold the same value, it is in the loss once.
  static at::Tensor loss(const at::Tensor& y, const at::Tensor& c) { return y.square().mul(c).sum().mul(0.5); }
  at::Tensor weights(const at::Tensor& y, int rank) const {
    return random_numbers(y.sizes().vec(), same_output() ? "c" : "c" + std::to_string(rank));
  }
};

TEST_P(Collective, EqualsFiniteDifferences) {
  comm::test::run_threads(size(), [&](comm::Communicator& group) {
    const at::Tensor x = input(group.rank()).requires_grad_(true);
    const at::Tensor y = apply(which(), x, group);
    const at::Tensor c = weights(y, group.rank());
    torch::autograd::backward({loss(y, c)});
    ASSERT_EQ(x.grad().sizes(), x.sizes());

    const at::NoGradGuard no_grad;
    // All ranks step through all coordinates of all inputs together.
    const auto total = [&](const at::Tensor& moved) {
      const at::Tensor value = loss(apply(which(), moved, group), c).mul(same_output() && group.rank() > 0 ? 0 : 1);
      group.all_reduce("total", value).wait();
      return value.item<double>();
    };
    for (int owner = 0; owner < (same_input() ? 1 : group.size()); ++owner)
      for (int64_t i = 0; i < x.numel(); ++i) {
        const bool mine = same_input() || owner == group.rank();
        // The loss is a square: central differences are exact but for rounding, 1e-16 of a value of up to 100.
        const auto moved = [&](double step) {
          const at::Tensor there = x.detach().clone();
          if (mine) there.view({-1})[i] += step;
          return total(there);
        };
        const double slope = (moved(0.5) - moved(-0.5));
        if (mine) { EXPECT_NEAR(x.grad().view({-1})[i].item<double>(), slope, 1e-12) << "coordinate " << i; }
      }
  });
}

// An input that is not contiguous, and such a gradient, give what their copies give.
TEST_P(Collective, TakesStridedInputsAndGradients) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    comm::test::run_threads(size(), [&](comm::Communicator& group) {
      const auto run = [&](bool strided) {
        const at::Tensor values = input(group.rank()).to(type);
        const at::Tensor x = strided ? values.t().contiguous().t() : values;
        const at::Tensor leaf = x.detach().requires_grad_(true);
        const at::Tensor y = apply(which(), leaf, group);
        const at::Tensor dy = weights(y, group.rank()).to(type);
        torch::autograd::backward({y}, {strided ? dy.t().contiguous().t() : dy});
        EXPECT_EQ(y.scalar_type(), type);
        EXPECT_EQ(leaf.grad().scalar_type(), type);
        EXPECT_TRUE(same_bits(leaf.detach(), values));  // the caller's memory is left alone
        return Tensors{y.detach(), leaf.grad()};
      };
      const Tensors plain = run(false), strided = run(true);
      for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], strided[i])) << i;
    });
}

TEST_P(Collective, OutputThatIsNotUsedHasNoGradient) {
  comm::test::run_threads(size(), [&](comm::Communicator& group) {
    const at::Tensor x = input(group.rank()).requires_grad_(true);
    // The node is reached with an undefined gradient, as from a function that leaves an input unused.
    const at::Tensor y = apply(which(), x, group);
    const Tensors out = recomputed([](const Tensors& in) { return Tensors{in[1].mul(2)}; }, {y, x});
    torch::autograd::backward({out[0].sum()});
    EXPECT_TRUE(x.grad().eq(2).all().item<bool>());
  });
}

TEST_P(Collective, WithoutGradientsBuildsNoGraph) {
  comm::test::run_threads(size(), [&](comm::Communicator& group) {
    const at::Tensor x = input(group.rank()).requires_grad_(true);
    const at::Tensor trained = apply(which(), x, group);
    const at::NoGradGuard no_grad;
    const at::Tensor y = apply(which(), x, group);
    EXPECT_TRUE(same_bits(y, trained));
    if (size() > 1) { EXPECT_EQ(y.grad_fn(), nullptr); }
  });
}

TEST_P(Collective, WorksOnTheMetaDevice) {
  const auto world = comm::World::fake(size() - 1, size());
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) ranks.push_back(rank);
  const auto group = world->make_group("tensor", ranks);
  const at::Tensor x = at::empty({2 * size(), kWidth}, at::kMeta).requires_grad_(true);
  const at::Tensor y = apply(which(), x, *group);
  torch::autograd::backward({y}, {at::empty(y.sizes(), at::kMeta)});
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  std::vector<comm::Kind> kinds;
  for (const comm::FakeCall& call : world->fake_calls()) kinds.push_back(call.kind);
  using enum comm::Kind;
  const std::vector<comm::Kind> expected = size() == 1                  ? std::vector<comm::Kind>{}
                                           : which() == Which::copy   ? std::vector{all_reduce}
                                           : which() == Which::reduce ? std::vector{all_reduce}
                                           : which() == Which::gather ? std::vector{all_gather, reduce_scatter}
                                                                      : std::vector{reduce_scatter, all_gather};
  EXPECT_EQ(kinds, expected);
}

std::string name_of(Which which) {
  switch (which) {
    case Which::copy: return "copy";
    case Which::reduce: return "reduce";
    case Which::gather: return "gather";
    case Which::reduce_scatter: return "reduce_scatter";
  }
  return {};
}

INSTANTIATE_TEST_SUITE_P(Of, Collective,
                         testing::Combine(testing::Values(Which::copy, Which::reduce, Which::gather,
                                                          Which::reduce_scatter),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return name_of(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

constexpr Which kAll[] = {Which::copy, Which::reduce, Which::gather, Which::reduce_scatter};

// 256 + 1 + 1 is 258 in bf16, and (256 + 1) + 1 with a rounding after each addition is 256.
TEST(Collectives, RoundSumsOfBf16Once) {
  for (const Which which : kAll)
    comm::test::run_threads(3, [&](comm::Communicator& group) {
      const auto bf16 = at::TensorOptions().dtype(at::kBFloat16);
      const double mine = group.rank() == 0 ? 256 : 1;
      const at::Tensor x = at::zeros({6, kWidth}, bf16).fill_(mine).requires_grad_(true);
      const at::Tensor y = apply(which, x, group);
      torch::autograd::backward({y}, {at::zeros(y.sizes(), bf16).fill_(mine)});
      const bool forward = which == Which::reduce || which == Which::reduce_scatter;
      EXPECT_TRUE((forward ? y.detach() : x.grad()).eq(258).all().item<bool>()) << name_of(which);
    });
}

TEST(Collectives, CostNothingInAGroupOfOne) {
  for (const Which which : kAll)
    comm::test::run_threads(1, [&](comm::Communicator& group) {
      const at::Tensor x = random_numbers({2, kWidth}, "x").requires_grad_(true);
      EXPECT_TRUE(apply(which, x, group).is_same(x)) << name_of(which);
      EXPECT_TRUE(group.statistics().empty());
    });
}

TEST(ReduceFromGroup, WorksInTheMemoryOfATemporaryOnly) {
  comm::test::run_threads(2, [](comm::Communicator& group) {
    at::Tensor x = random_numbers({4, 4}, "x");
    const at::Tensor before = x.clone();
    const void* memory = x.data_ptr();
    EXPECT_NE(reduce_from_group(x, group, "kept").data_ptr(), memory);
    EXPECT_TRUE(same_bits(x, before));
    const at::Tensor view = x.narrow(0, 0, 2);
    EXPECT_NE(reduce_from_group(x.narrow(0, 0, 2), group, "view").data_ptr(), memory);
    EXPECT_TRUE(same_bits(x, before));
  });
  comm::test::run_threads(2, [](comm::Communicator& group) {
    at::Tensor x = random_numbers({4, 4}, "x");
    const at::Tensor expected = x.mul(2);
    const void* memory = x.data_ptr();
    const at::Tensor y = reduce_from_group(std::move(x), group, "given away");
    EXPECT_EQ(y.data_ptr(), memory);
    EXPECT_TRUE(same_bits(y, expected));
  });
}

// A gradient that two nodes were given must not be summed in place: the normalisation gives both of its inputs
// the same tensor.
TEST(CopyToGroup, LeavesASharedGradientAlone) {
  comm::test::run_threads(3, [](comm::Communicator& group) {
    const auto run = [&](bool through_group) {
      const at::Tensor a = random_numbers({4, 8}, "a").requires_grad_(true);
      const at::Tensor b = random_numbers({4, 8}, "b").requires_grad_(true);
      const Weight weight{random_numbers({8}, "w"), at::zeros({8}, at::kDouble)};
      // The last to be made is the first to have its gradient.
      const at::Tensor residual = a.mul(2), scaled = b.mul(3);
      const at::Tensor delta = through_group ? copy_to_group(scaled, group, "delta") : scaled;
      const Normalized n = add_norm(residual, delta, weight, {}, NormKind::layer, 1e-5);
      torch::autograd::backward({n.y}, {random_numbers({4, 8}, "dy")});
      return Tensors{a.grad(), b.grad()};
    };
    const Tensors alone = run(false), together = run(true);
    EXPECT_TRUE(same_bits(together[0], alone[0]));
    EXPECT_LE(relative_error(together[1], alone[1].mul(3)), 1e-15);
  });
}

// A normalisation and an MLP in parts, each way that a tensor-parallel block divides them.
class Block : public testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  static constexpr int64_t kTokens = 12, kHidden = 8, kInner = 24;
  int size() const { return std::get<0>(GetParam()); }
  bool by_tokens() const { return std::get<1>(GetParam()); }
  bool recompute() const { return std::get<2>(GetParam()); }

  struct Weights {
    Weight norm, up, down;
  };
  // The values of the whole, of which a rank has part `rank` of `parts`.
  static Weights weights(at::ScalarType type, int rank, int parts) {
    const auto make = [&](const at::Tensor& value) {
      const at::Tensor v = value.to(type).contiguous();
      return Weight{v, at::zeros(v.sizes(), v.options().dtype(gradient_type(type)))};
    };
    const int64_t inner = kInner / parts;
    return {make(random_numbers({kHidden}, "norm")),
            make(random_numbers({kInner, kHidden}, "up", 0.35).narrow(0, rank * inner, inner)),
            make(random_numbers({kHidden, kInner}, "down", 0.2).narrow(1, rank * inner, inner))};
  }

  Tensors forward(const Tensors& x, const Weights& w, comm::Communicator& group) const {
    const auto once = [this, w, &group](const Tensors& in) {
      const Normalized n = add_norm(in[0], {}, w.norm, {}, NormKind::rms, 1e-5);
      const at::Tensor whole = by_tokens() ? gather_rows(n.y, group, "enter") : copy_to_group(n.y, group, "enter");
      at::Tensor y = mlp(whole, Activation::gelu, w.up, {}, w.down, {}, false);
      y = by_tokens() ? reduce_scatter_rows(y, group, "leave") : reduce_from_group(std::move(y), group, "leave");
      return Tensors{n.sum, y};
    };
    return recompute() ? recomputed(once, x) : once(x);
  }

  // Outputs, the gradient of x, and those of the weights, of the whole, on every rank.
  Tensors run(at::ScalarType type, comm::Communicator& group, int parts) const {
    const int64_t rows = by_tokens() ? kTokens / parts : kTokens;
    const int64_t row = by_tokens() ? group.rank() * rows : 0;
    const auto mine = [&](const char* name) {
      return random_numbers({kTokens, kHidden}, name).to(type).narrow(0, row, rows).clone();
    };
    const at::Tensor x = mine("x").requires_grad_(true);
    const Weights w = weights(type, parts == 1 ? 0 : group.rank(), parts);
    const Tensors y = forward({x}, w, group);
    torch::autograd::backward(y, {mine("d sum"), mine("dy")});
    const auto whole = [&](const at::Tensor& part, int64_t dimension) {
      if (parts == 1) return part.detach();
      const at::Tensor all = at::empty({parts, part.numel()}, part.options());
      group.all_gather("whole", part.detach().contiguous().view({-1}), all).wait();
      Tensors list;
      for (int i = 0; i < parts; ++i) list.push_back(all[i].view(part.sizes()));
      return at::cat(list, dimension);
    };
    // By tokens each rank has the norm's gradient of its rows: the sum is the gradient.
    if (by_tokens() && parts > 1) group.all_reduce("norm", w.norm.gradient).wait();
    Tensors results;
    for (const at::Tensor& t : {y[0], y[1], x.grad()}) results.push_back(by_tokens() ? whole(t, 0) : t.detach());
    results.push_back(w.norm.gradient);
    results.push_back(whole(w.up.gradient, 0));
    results.push_back(whole(w.down.gradient, 1));
    return results;
  }
};

TEST_P(Block, EqualsTheWhole) {
  Tensors exact;
  comm::test::run_threads(1, [&](comm::Communicator& alone) { exact = run(at::kDouble, alone, 1); });
  // Float as in operations_test.cpp. In bf16 seven roundings follow each other: the norm, the four of the MLP, of
  // the parts, and of their sum.
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 4e-6},
                                        {at::kBFloat16, 1.2 * 0x1p-9 * std::sqrt(7)}})
    comm::test::run_threads(size(), [&, type = type, tolerance = tolerance](comm::Communicator& group) {
      const Tensors got = run(type, group, group.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(relative_error(got[i], exact[i]), tolerance) << type << ", result " << i;
    });
}

// Recomputation issues the forward pass's calls a second time.
TEST_P(Block, CallsTheGroupAsOftenAsItMust) {
  comm::test::run_threads(size(), [&](comm::Communicator& group) {
    run(at::kFloat, group, group.size());
    int64_t entered = 0, left = 0, gradients = 0;
    for (const comm::CallStatistics& call : group.statistics()) {
      if (call.label == "enter") entered = call.calls;
      if (call.label == "leave") left = call.calls;
      if (call.label == "enter gradient" || call.label == "leave gradient") gradients += call.calls;
    }
    const int64_t calls = size() == 1 ? 0 : 1, passes = recompute() ? 2 : 1;
    EXPECT_EQ(entered, by_tokens() ? calls * passes : 0);
    EXPECT_EQ(left, calls * passes);
    EXPECT_EQ(gradients, by_tokens() ? 2 * calls : calls);
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Block,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_by_tokens" : "") +
                                  (std::get<2>(info.param) ? "_recomputed" : "");
                         });

}  // namespace
}  // namespace sauropod::ops

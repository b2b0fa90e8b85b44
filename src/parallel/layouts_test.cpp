// No layout changes what is learned: tiny models of both families under combinations of tensor, sequence,
// pipeline and data parallelism, beside one rank.
//
// `make test` takes a cover in which every pair of two settings' values occurs; with SAUROPOD_TEST_FULL=1
// (make test-full) every combination runs.
#include <gtest/gtest.h>

#include <set>

#include "comm/test_support.h"
#include "parallel/test_support.h"

namespace sauropod::parallel::test {
namespace {

// Every combination of the settings for a number of ranks.
std::vector<Case> combinations(int world) {
  std::vector<Case> cases;
  for (const int64_t tensor : {1, 2, 4})
    for (const int64_t pipeline : {1, 2, 4}) {
      if (world % (tensor * pipeline) != 0 || world / (tensor * pipeline) > 2) continue;
      const int64_t data = world / (tensor * pipeline);
      for (const bool sequence : {false, true})
        for (const int64_t chunks : {1, 2})
          for (const bool zero : {false, true})
            for (const char* family : {"jurassic", "llama"})
              for (const int64_t microbatches : std::set<int64_t>{1, pipeline - 1, pipeline, 2 * pipeline + 1}) {
                if ((sequence && tensor == 1) || (chunks > 1 && pipeline == 1) || (zero && data == 1) ||
                    microbatches == 0)
                  continue;
                Case c;
                c.parallel = {tensor, sequence, pipeline, chunks, {}, zero};
                c.family = family;
                c.tied = std::string(family) == "jurassic";
                c.batches = {microbatches * data};
                cases.push_back(c);
              }
    }
  return cases;
}

// The settings of a case as numbers, for the cover.
std::vector<int64_t> settings(const Case& c) {
  const auto& p = c.parallel;
  return {p.tensor, p.sequence, p.pipeline, p.virtual_stages, p.zero, c.family == "llama",
          c.batches[0] / std::max<int64_t>(1, p.pipeline)};
}

// A part of the cases in which every pair of values that two settings have together in any case occurs.
std::vector<Case> pairwise_cover(const std::vector<Case>& all) {
  using Pair = std::tuple<size_t, int64_t, size_t, int64_t>;
  const auto pairs = [](const Case& c) {
    std::set<Pair> result;
    const std::vector<int64_t> s = settings(c);
    for (size_t i = 0; i < s.size(); ++i)
      for (size_t j = i + 1; j < s.size(); ++j) result.insert({i, s[i], j, s[j]});
    return result;
  };
  std::set<Pair> missing;
  for (const Case& c : all) missing.merge(pairs(c));
  std::vector<Case> chosen;
  while (!missing.empty()) {
    const Case* best = nullptr;
    size_t most = 0;
    for (const Case& c : all) {
      size_t gain = 0;
      for (const Pair& pair : pairs(c)) gain += missing.count(pair);
      if (gain > most) {
        most = gain;
        best = &c;
      }
    }
    for (const Pair& pair : pairs(*best)) missing.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

// Of gradients. fp64: the order of sums. fp32: 2⁻²⁴ · √(sums of some thousand terms), twenty-fold for what
// cancels. bf16: activations are rounded by up to 2⁻⁸ where a sum is handed from rank to rank, four times a
// block and twice a stage, so a gradient differs by some times that.
double tolerance(model::Precision precision) {
  if (precision == model::Precision::fp64) return 1e-10;
  return precision == model::Precision::fp32 ? 3e-5 : 0.06;
}

void expect_near(const Case& c, comm::World& world) {
  const Distance d = distance(c, world);
  const double allowed = tolerance(c.precision);
  const std::string what = describe(c, world.size());
  EXPECT_LE(d.gradient, allowed) << what << ": " << d.where;
  // Losses are means over many rounded values, and so ten times nearer.
  EXPECT_LE(d.loss, c.precision == model::Precision::bf16 ? allowed / 10 : allowed) << what;
  EXPECT_LE(d.norm, allowed) << what;
  // Adam makes steps of one size of gradients of any: where these are small, rounding shows, and of a bias
  // whose gradient bf16 leaves no digit of, nothing can be said.
  if (c.precision == model::Precision::bf16) return;
  EXPECT_LE(d.weights, allowed) << what << ": " << d.where;
}

class Layouts : public testing::TestWithParam<int> {};

TEST_P(Layouts, OfTheMatrixLearnTheSame) {
  const int ranks = GetParam();
  const std::vector<Case> all = combinations(ranks);
  const bool full = !comm::test::test_variable("SAUROPOD_TEST_FULL").empty();
  const std::vector<Case> chosen = full ? all : pairwise_cover(all);
  EXPECT_GT(chosen.size(), 3u);
  comm::test::RunOptions options;
  options.limit = std::chrono::seconds(full ? 3600 : 300);
  comm::test::run_ranks(
      ranks,
      [&](comm::World& world) {
        for (Case c : chosen) {
          c.steps = full ? 20 : 4;
          expect_near(c, world);
        }
      },
      options);
  std::printf("%d ranks: %zu of %zu layouts%s\n", ranks, chosen.size(), all.size(),
              full ? "" : " (all: SAUROPOD_TEST_FULL=1, make test-full)");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Layouts, testing::Values(2, 4, 8));

TEST(Layouts, OfOtherKindsLearnTheSame) {
  comm::test::run_ranks(4, [&](comm::World& world) {
    Case c;
    c.steps = 20;
    c.parallel = {2, true, 2, 2, {1, 3, 2, 2}, true};  // unequal stages
    c.batches = {2, 3, 5, 5};                          // a ramp
    c.micro_batch = 2;                                 // and a last microbatch that is smaller
    expect_near(c, world);
    c.parallel = {1, false, 1, 1, {}, true};  // batches that four ranks share unequally, or not at all
    c.batches = {5, 3, 1};
    expect_near(c, world);
    c.parallel.zero = false;
    expect_near(c, world);
    c.documents = true;
    c.parallel = {2, true, 2, 1, {}, true};
    for (const auto recompute : {model::Recompute::selective, model::Recompute::full}) {
      c.recompute = recompute;
      c.family = recompute == model::Recompute::full ? "llama" : "jurassic";
      expect_near(c, world);
    }
    // Families and tied embeddings crossed.
    for (const char* family : {"jurassic", "llama"}) {
      c = {};
      c.family = family;
      c.tied = std::string(family) == "llama";
      c.parallel = {1, false, 2, 2, {}, true};
      expect_near(c, world);
    }
  });
}

TEST(Layouts, LearnTheSameInFloatAndBf16) {
  comm::test::run_ranks(4, [&](comm::World& world) {
    for (const auto precision : {model::Precision::fp32, model::Precision::bf16})
      for (const ParallelOptions& parallel :
           {ParallelOptions{2, true, 2, 2, {}, true}, ParallelOptions{4, false, 1, 1, {}, true},
            ParallelOptions{1, false, 1, 1, {}, true}, ParallelOptions{2, false, 1, 1, {}, true}}) {
        Case c;
        c.precision = precision;
        c.parallel = parallel;
        c.steps = precision == model::Precision::bf16 ? 20 : 2;
        expect_near(c, world);
      }
  });
}

// Spoils one thing at a time; the comparison above must notice each.
TEST(Layouts, FaultsAreNoticed) {
  const auto each = [](const std::function<bool(const model::Parameter&)>& which,
                       const std::function<void(Held&)>& change) {
    Faults faults;
    faults.placement = [which, change](Placement& p, const comm::Mesh&) {
      for (size_t i = 0; i < p.table.size(); ++i)
        if (which(p.table[i])) change(p.held[i]);
    };
    return faults;
  };
  const auto named = [](const char* text) {
    return [text](const model::Parameter& p) { return p.name.find(text) != std::string::npos; };
  };
  const auto any = [](const model::Parameter&) { return true; };
  const ParallelOptions tensor{2, false, 2, 1, {}, true}, sequence{2, true, 2, 1, {}, true};
  const ParallelOptions stages{1, false, 2, 2, {}, true}, data{1, false, 1, 1, {}, true};

  std::vector<std::tuple<std::string, ParallelOptions, Faults>> all;
  all.emplace_back("LayerNorm's gradient not summed over tokens", sequence,
                   each(named("norm"), [](Held& h) { h.partial = false; }));
  all.emplace_back("an output bias's gradient on one rank only", tensor,
                   each(named("output.bias"), [](Held& h) { h.partial = false; }));
  all.emplace_back("LayerNorm's gradient summed though every rank has it", tensor,
                   each(named("norm"), [](Held& h) { h.partial = true; }));
  all.emplace_back("tied gradients not summed", stages, each(any, [](Held& h) { h.tied = false; }));
  Faults twice;
  twice.placement = [](Placement& p, const comm::Mesh& mesh) {
    for (Held& h : p.held) h.counted = h.counted || mesh.last_stage();
  };
  all.emplace_back("the tied embedding counted twice in the norm", stages, twice);
  all.emplace_back("shared parameters counted by every tensor-parallel rank", tensor,
                   each(any, [](Held& h) { h.counted = true; }));
  Faults per_stage;
  per_stage.placement = [](Placement& p, const comm::Mesh& mesh) {
    for (Held& h : p.held) h.counted = h.counted && mesh.first_stage();
  };
  all.emplace_back("the norm of one stage", stages, per_stage);
  Faults scale;
  scale.loss = [](ops::CrossEntropyOptions& loss, const comm::Mesh& mesh) {
    loss.scale *= mesh.data().size();
  };
  all.emplace_back("the mean over a rank's own tokens", data, scale);
  Faults share;
  share.share = [](int64_t batch, const comm::Mesh& mesh) {
    return Sequences{0, batch / mesh.data().size()};
  };
  all.emplace_back("every rank trains on the same sequences", data, share);
  Faults initial;
  initial.placement = [](Placement& p, const comm::Mesh&) {
    for (model::Parameter& part : p.table) {
      part.whole.clear();
      part.offset.clear();
    }
  };
  all.emplace_back("initial values by the index in the part", tensor, initial);
  Faults shifted;
  shifted.placement = [](Placement& p, const comm::Mesh& mesh) {
    if (mesh.coordinates().tensor > 0) --p.first_item;
  };
  all.emplace_back("a vocabulary part off by one", tensor, shifted);
  EXPECT_GE(all.size(), 10u);

  comm::test::run_ranks(4, [&](comm::World& world) {
    for (const auto& [what, parallel, faults] : all) {
      Case c;
      c.parallel = parallel;
      c.batches = {4};
      const Distance d = distance(c, world, faults);
      double worst = std::max({d.gradient, d.loss, d.norm, d.weights});
      const at::Tensor all_ranks = at::empty({1}, at::kDouble).fill_(worst);
      auto group = world.make_group("verdict", {0, 1, 2, 3});
      group->all_reduce("worst", all_ranks, comm::Reduce::max).wait();
      EXPECT_GT(all_ranks.item<double>(), 1e-6) << what << " was not noticed";
    }
  });
}

}  // namespace
}  // namespace sauropod::parallel::test

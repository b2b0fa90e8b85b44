#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace sauropod::infer {
namespace {

std::vector<float> random_logits(uint64_t key, size_t size) {
  std::vector<float> logits(size);
  // Rounded, so that there are ties.
  for (size_t i = 0; i < size; ++i)
    logits[i] = static_cast<float>(std::round(8 * base::random_normal(key, i)) / 4);
  return logits;
}

// How often each item is drawn at `draws` positions.
std::map<int32_t, int> drawn(const std::vector<float>& logits, const SamplingOptions& options,
                             int draws) {
  Sampler sampler(options, 0, {});
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.choose(logits, static_cast<uint64_t>(i))];
  return counts;
}

// The probabilities that the options leave, by a full sort.
std::map<int32_t, double> reference(const std::vector<float>& logits, const SamplingOptions& o) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const auto weight = [&](int32_t id) {
    return std::exp((double(logits[static_cast<size_t>(id)]) - logits[static_cast<size_t>(order[0])]) /
                    o.temperature);
  };
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < order.size())
    order.resize(static_cast<size_t>(o.top_k));
  double total = 0, mass = 0;
  for (const int32_t id : order) total += weight(id);
  size_t kept = 0;
  while (kept < order.size() && (o.top_p == 1 || mass < o.top_p * total)) mass += weight(order[kept++]);
  order.resize(kept);
  std::erase_if(order, [&](int32_t id) { return weight(id) < o.min_p; });
  total = 0;
  for (const int32_t id : order) total += weight(id);
  std::map<int32_t, double> probabilities;
  for (const int32_t id : order) probabilities[id] = weight(id) / total;
  return probabilities;
}

TEST(Sampler, DrawsWithTheProbabilitiesThatTheLimitsLeave) {
  const auto logits = random_logits(5, 60);
  const std::vector<SamplingOptions> cases{
      {.seed = 1},
      {.temperature = 0.5, .seed = 2},
      {.temperature = 2, .top_k = 7, .seed = 3},
      {.top_p = 0.7, .seed = 4},
      {.top_k = 20, .top_p = 0.8, .min_p = 0.05, .seed = 5},
      {.min_p = 0.2, .seed = 6},
      {.top_k = 1, .seed = 7},
      {.top_p = 1e-9, .seed = 8},
  };
  constexpr int draws = 20000;
  for (const SamplingOptions& options : cases) {
    const auto expected = reference(logits, options);
    const auto counts = drawn(logits, options, draws);
    for (const auto& [id, count] : counts) ASSERT_TRUE(expected.contains(id)) << options.seed;
    for (const auto& [id, probability] : expected) {
      const double deviation = std::sqrt(probability * (1 - probability) / draws);
      const double share = counts.contains(id) ? double(counts.at(id)) / draws : 0;
      EXPECT_NEAR(share, probability, 5 * deviation + 1e-9) << options.seed << ' ' << id;
    }
  }
}

TEST(Sampler, ThresholdsAgreeWithASortOnALargeVocabulary) {
  const auto logits = random_logits(6, 30000);
  for (const SamplingOptions& options : std::vector<SamplingOptions>{
           {.top_k = 3}, {.temperature = 0.2, .top_p = 0.4}, {.top_k = 50, .top_p = 0.3}}) {
    const auto expected = reference(logits, options);
    ASSERT_LT(expected.size(), 60U);
    std::set<int32_t> ids;
    for (const auto& [id, count] : drawn(logits, options, 600)) ids.insert(id);
    for (const int32_t id : ids) EXPECT_TRUE(expected.contains(id));
    EXPECT_GT(ids.size(), expected.size() * 9 / 10);
  }
}

TEST(Sampler, TemperatureZeroTakesTheMostProbableAndTheFirstOfEquals) {
  Sampler sampler({.temperature = 0, .top_k = 2, .top_p = 0.1}, 0, {});
  EXPECT_EQ(sampler.choose(std::vector<float>{1, 3, -2, 3}, 0), 1);
}

TEST(Sampler, ADrawDependsOnSeedChoiceAndPositionAlone) {
  const auto logits = random_logits(7, 500);
  const SamplingOptions options{.seed = 11};
  Sampler a(options, 2, {}), b(options, 2, {});
  std::vector<int32_t> forward, backward;
  for (uint64_t i = 0; i < 50; ++i) forward.push_back(a.choose(logits, i));
  for (uint64_t i = 50; i-- > 0;) backward.push_back(b.choose(logits, i));
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  Sampler other_choice(options, 3, {}), other_seed({.seed = 12}, 2, {});
  std::vector<int32_t> by_choice, by_seed;
  for (uint64_t i = 0; i < 50; ++i) {
    by_choice.push_back(other_choice.choose(logits, i));
    by_seed.push_back(other_seed.choose(logits, i));
  }
  EXPECT_NE(forward, by_choice);
  EXPECT_NE(forward, by_seed);
}

TEST(Sampler, TheRepetitionPenaltyFallsOnThePromptAndOnWhatWasChosen) {
  const std::vector<int32_t> prompt{0, 0};
  Sampler sampler({.temperature = 0, .repetition_penalty = 2}, 0, prompt);
  const std::vector<float> logits{4, 3, 2.5, -1};
  EXPECT_EQ(sampler.choose(logits, 0), 1);  // 4 became 2
  EXPECT_EQ(sampler.choose(logits, 1), 2);  // 3 became 1.5
  EXPECT_EQ(sampler.choose(logits, 2), 0);  // 2.5 became 1.25
  Sampler negative({.temperature = 0, .repetition_penalty = 2}, 0, prompt);
  EXPECT_EQ(negative.choose(std::vector<float>{-1, -1.5}, 0), 1);  // −1 became −2
}

TEST(Sampler, RefusesWhatCannotBeMeant) {
  const auto message = [](const SamplingOptions& options) -> std::string {
    try {
      options.check();
    } catch (const base::Error& error) {
      EXPECT_EQ(error.exit_code(), base::Exit::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({.temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = std::nan("")}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("top-k"), std::string::npos);
  EXPECT_NE(message({.top_p = 0}).find("top-p"), std::string::npos);
  EXPECT_NE(message({.min_p = 1.5}).find("min-p"), std::string::npos);
  EXPECT_NE(message({.repetition_penalty = 0}).find("repetition"), std::string::npos);
  EXPECT_EQ(message({}), "");
  Sampler sampler({}, 0, {});
  EXPECT_THROW(sampler.choose(std::vector<float>{1, std::nanf("")}, 0), base::Error);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sampler.choose(std::vector<float>{-infinity, -infinity}, 0), base::Error);
  EXPECT_EQ(sampler.choose(std::vector<float>{-infinity, 1, -infinity}, 0), 1);
}

}  // namespace
}  // namespace sauropod::infer

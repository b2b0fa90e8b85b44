#include "infer/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "eval/test_support.h"

namespace sauropod::infer {
namespace {

using eval::TinyModel;

constexpr int64_t kVocabulary = 50;
constexpr int64_t kContext = 24;

class Generate : public ::testing::TestWithParam<const char*> {
 protected:
  Generate()
      : tiny_(GetParam(), model::Precision::fp64, kVocabulary, kContext),
        decoder_(tiny_.options, tiny_.memory) {}

  // The most probable next item by training's forward pass over the whole sequence.
  int32_t best_after(std::vector<int32_t> tokens) const {
    const at::NoGradGuard no_grad;
    const at::Tensor states =
        tiny_.transformer.states({at::tensor(tokens, at::kInt).unsqueeze(0), {}, {}});
    return static_cast<int32_t>(
        tiny_.transformer.logits(states.narrow(0, states.size(0) - 1, 1)).argmax().item<int64_t>());
  }

  TinyModel tiny_;
  Decoder decoder_;
  const std::vector<int32_t> prompt_{7, 8, 9};
};

TEST_P(Generate, GreedyFollowsTheModel) {
  GenerateOptions options{.sampling = {.temperature = 0}, .max_tokens = 10};
  const auto completion = generate(decoder_, prompt_, options).at(0);
  std::vector<int32_t> sequence{0};
  sequence.insert(sequence.end(), prompt_.begin(), prompt_.end());
  for (const int32_t token : completion.tokens) {
    EXPECT_EQ(token, best_after(sequence));
    sequence.push_back(token);
  }
  if (completion.finish == Finish::stop) {
    EXPECT_EQ(best_after(sequence), 0);
  } else {
    EXPECT_EQ(completion.tokens.size(), 10U);
  }
}

TEST_P(Generate, StopsAtTheEndOfTheDocument) {
  GenerateOptions options{
      .sampling = {.temperature = 50}, .max_tokens = 15, .choices = 30, .vocabulary = 1};
  for (const auto& completion : generate(decoder_, prompt_, options)) {
    EXPECT_EQ(completion.finish, Finish::stop);
    EXPECT_TRUE(completion.tokens.empty());
  }
  // Half of the draws end the document.
  options.vocabulary = 2;
  int stopped = 0;
  size_t tokens = 0;
  for (const auto& completion : generate(decoder_, prompt_, options)) {
    EXPECT_EQ(completion.finish == Finish::length, completion.tokens.size() == 15);
    for (const int32_t token : completion.tokens) EXPECT_EQ(token, 1);
    stopped += completion.finish == Finish::stop ? 1 : 0;
    tokens += completion.tokens.size();
  }
  EXPECT_GT(stopped, 25);
  EXPECT_GT(tokens, 5U);
}

TEST_P(Generate, AFullContextEndsWithItsReason) {
  const std::vector<int32_t> prompt(kContext - 3, 5);
  GenerateOptions options{.sampling = {.seed = 3}, .max_tokens = 1000};
  options.end_of_document = kVocabulary - 1;
  options.vocabulary = kVocabulary - 1;  // so that it can't be chosen
  const auto completion = generate(decoder_, prompt, options).at(0);
  // Two more tokens fit, and one that need not be read.
  EXPECT_EQ(completion.tokens.size(), 3U);
  EXPECT_EQ(finish_name(completion.finish), "length");
  EXPECT_EQ(generate(decoder_, std::vector<int32_t>(kContext - 1, 5), options).at(0).tokens.size(), 1U);
  EXPECT_THROW(generate(decoder_, std::vector<int32_t>(kContext, 5), options), base::Error);
}

TEST_P(Generate, ChoicesAreWhatTheyAreWhateverIsGeneratedBesideThem) {
  GenerateOptions options{.sampling = {.seed = 9}, .max_tokens = 15, .choices = 4};
  std::vector<std::vector<int32_t>> streamed(4);
  const auto four = generate(decoder_, prompt_, options, [&](int64_t choice, int32_t token) {
    streamed[static_cast<size_t>(choice)].push_back(token);
  });
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(streamed[i], four[i].tokens);
  EXPECT_NE(four[0].tokens, four[1].tokens);
  options.choices = 2;
  const auto two = generate(decoder_, prompt_, options);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two[i].tokens, four[i].tokens);
    EXPECT_EQ(two[i].finish, four[i].finish);
  }
}

TEST_P(Generate, OnlyTheVocabularysItemsAreChosen) {
  GenerateOptions options{.sampling = {.temperature = 50, .seed = 1}, .max_tokens = 20, .choices = 5};
  options.vocabulary = 10;
  for (const auto& completion : generate(decoder_, prompt_, options))
    for (const int32_t token : completion.tokens) EXPECT_LT(token, 10);
  EXPECT_FALSE(generate(decoder_, {}, options).empty());
  options.max_tokens = 0;
  EXPECT_THROW(generate(decoder_, prompt_, options), base::Error);
}

INSTANTIATE_TEST_SUITE_P(Families, Generate, ::testing::Values("jurassic", "llama"));

}  // namespace
}  // namespace sauropod::infer

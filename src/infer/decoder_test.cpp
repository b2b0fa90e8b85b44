#include "infer/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "eval/test_support.h"

namespace sauropod::infer {
namespace {

using eval::TinyModel;
using model::Precision;

constexpr int64_t kVocabulary = 50;
constexpr int64_t kContext = 80;

std::vector<int32_t> random_tokens(uint64_t key, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(base::random_bits(key, i) % kVocabulary));
  return tokens;
}

// The logits of training's forward pass, [tokens, vocabulary].
at::Tensor reference(const TinyModel& tiny, const std::vector<int32_t>& tokens) {
  const at::NoGradGuard no_grad;
  return tiny.transformer.logits(
      tiny.transformer.states({at::tensor(tokens, at::kInt).unsqueeze(0), {}, {}}));
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x.sub(y).norm().item<double>()) / y.norm().item<double>();
}

double tolerance(Precision precision) {
  return precision == Precision::fp64 ? 1e-10 : precision == Precision::fp32 ? 1e-5 : 3e-2;
}

std::span<const int32_t> part(const std::vector<int32_t>& tokens, size_t begin, size_t count) {
  return std::span(tokens).subspan(begin, count);
}

class DecoderTest : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {
 protected:
  DecoderTest()
      : precision_(std::get<1>(GetParam())),
        tiny_(std::get<0>(GetParam()), precision_, kVocabulary, kContext),
        decoder_(tiny_.options, tiny_.memory) {}

  Precision precision_;
  TinyModel tiny_;
  Decoder decoder_;
};

TEST_P(DecoderTest, AnyDivisionGivesTheLogitsOfTraining) {
  const auto tokens = random_tokens(1, kContext);
  const at::Tensor expected = reference(tiny_, tokens);
  const std::vector<std::vector<size_t>> divisions{
      {80}, std::vector<size_t>(80, 1), {1, 30, 1, 1, 5, 42}, {70, 10}};
  for (const auto& division : divisions) {
    KeyValueCache cache = decoder_.make_cache(1, kContext);
    std::vector<at::Tensor> got;
    size_t begin = 0;
    for (const size_t count : division) {
      const std::vector<Piece> pieces{{0, part(tokens, begin, count)}};
      got.push_back(decoder_.logits(decoder_.states(cache, pieces)));
      begin += count;
    }
    EXPECT_EQ(cache.length(0), kContext);
    EXPECT_LT(difference(at::cat(got, 0), expected), tolerance(precision_)) << division.size();
  }
}

TEST_P(DecoderTest, SequencesOfDifferentLengthsShareAStep) {
  const auto a = random_tokens(2, 40), b = random_tokens(3, 21);
  KeyValueCache cache = decoder_.make_cache(3, 60);
  decoder_.next_logits(cache, std::vector<Piece>{{2, part(a, 0, 33)}});
  // One sequence goes on by a token while another is read, then both by a token.
  const at::Tensor first = decoder_.next_logits(
      cache, std::vector<Piece>{{2, part(a, 33, 1)}, {0, part(b, 0, 20)}});
  EXPECT_LT(difference(first[0], reference(tiny_, a)[33]), tolerance(precision_));
  EXPECT_LT(difference(first[1], reference(tiny_, b)[19]), tolerance(precision_));
  const at::Tensor second = decoder_.next_logits(
      cache, std::vector<Piece>{{0, part(b, 20, 1)}, {2, part(a, 34, 1)}});
  EXPECT_LT(difference(second[0], reference(tiny_, b)[20]), tolerance(precision_));
  EXPECT_LT(difference(second[1], reference(tiny_, a)[34]), tolerance(precision_));
  EXPECT_EQ(cache.length(0), 21);
  EXPECT_EQ(cache.length(1), 0);
  EXPECT_EQ(cache.length(2), 35);
}

TEST_P(DecoderTest, CopiesAndTruncatedSlotsGoOnAsTheirTokensSay) {
  const auto a = random_tokens(4, 30);
  auto b = a;
  b[20] = (b[20] + 1) % kVocabulary;
  KeyValueCache cache = decoder_.make_cache(2, 30);
  decoder_.next_logits(cache, std::vector<Piece>{{0, part(a, 0, 25)}});
  cache.copy(0, 1);
  cache.truncate(1, 20);
  const at::Tensor got = decoder_.next_logits(
      cache, std::vector<Piece>{{0, part(a, 25, 5)}, {1, part(b, 20, 10)}});
  EXPECT_LT(difference(got[0], reference(tiny_, a)[29]), tolerance(precision_));
  EXPECT_LT(difference(got[1], reference(tiny_, b)[29]), tolerance(precision_));
  EXPECT_GT(difference(got[0], got[1]), 1e-3);
  EXPECT_THROW(decoder_.next_logits(cache, std::vector<Piece>{{0, part(a, 0, 1)}}), base::Bug);
}

std::string name_of(const ::testing::TestParamInfo<DecoderTest::ParamType>& parameter) {
  return std::string(std::get<0>(parameter.param)) + "_" +
         std::string(model::precision_name(std::get<1>(parameter.param)));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderTest,
                         ::testing::Combine(::testing::Values("jurassic", "llama"),
                                            ::testing::Values(Precision::fp64, Precision::fp32,
                                                              Precision::bf16)),
                         name_of);

}  // namespace
}  // namespace sauropod::infer

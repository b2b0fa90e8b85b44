#include "eval/validation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/test_support.h"

namespace sauropod::eval {
namespace {

constexpr int64_t kContext = 16;
constexpr int32_t kVocabulary = 40;

// Documents of 3, 14, 25, … items and the end-of-document item 0 each.
class Validation : public ::testing::Test {
 protected:
  data::ValidationData make_data(int documents) {
    formats::IndexedDatasetWriter writer(folder_.path() / "valid", formats::TokenType::int32);
    for (int d = 0; d < documents; ++d) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < 3 + 11 * d; ++i) tokens.push_back(1 + (7 * d + 5 * i) % (kVocabulary - 1));
      tokens.push_back(0);
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      writer.add_document(tokens, "test");
    }
    writer.finish();
    writer.commit();
    std::vector<int32_t> bytes(kVocabulary);
    for (int32_t id = 0; id < kVocabulary; ++id) bytes[static_cast<size_t>(id)] = id % 4 + (id > 0);
    bytes[0] = 0;
    item_bytes_ = bytes;
    return {folder_.path() / "valid", kContext, bytes, 0};
  }

  int64_t bytes_of_all() const {
    int64_t bytes = 0;
    for (const int32_t id : tokens_) bytes += item_bytes_[static_cast<size_t>(id)];
    return bytes;
  }

  TemporaryFolder folder_;
  std::vector<int32_t> tokens_, item_bytes_;
};

// −ln p of every token, each window computed alone from the logits.
double reference_nats(const model::Transformer& model, const std::vector<int32_t>& tokens,
                      bool mask) {
  const at::NoGradGuard no_grad;
  double nats = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += kContext) {
    std::vector<int32_t> input;
    for (size_t i = begin; i < std::min(begin + kContext, tokens.size()); ++i)
      input.push_back(i == 0 ? 0 : tokens[i - 1]);
    // With the mask each document's part is a sequence of its own.
    size_t from = 0;
    for (size_t i = 0; i < input.size(); ++i) {
      if (i + 1 < input.size() && !(mask && input[i] == 0)) continue;
      const std::vector<int32_t> part(input.begin() + static_cast<long>(from),
                                      input.begin() + static_cast<long>(i) + 1);
      const at::Tensor states = model.states({at::tensor(part, at::kInt).unsqueeze(0), {}, {}});
      const at::Tensor logs = at::log_softmax(model.logits(states), 1);
      for (size_t j = from; j <= i; ++j)
        nats -= logs[static_cast<int64_t>(j - from)][tokens[begin + j]].item<double>();
      from = i + 1;
    }
  }
  return nats;
}

TEST_F(Validation, CountsEveryTokenAndByteOnce) {
  const auto data = make_data(7);
  for (const char* family : {"jurassic", "llama"}) {
    const TinyModel tiny(family, model::Precision::fp64, kVocabulary, kContext);
    for (const bool mask : {false, true}) {
      const Score score = evaluate(tiny.transformer, data, 0, 3, 0, mask);
      EXPECT_EQ(score.tokens, static_cast<int64_t>(tokens_.size()));
      EXPECT_EQ(score.bytes, bytes_of_all());
      const double expected = reference_nats(tiny.transformer, tokens_, mask);
      EXPECT_NEAR(score.nats / expected, 1, 1e-10) << family << mask;
      EXPECT_DOUBLE_EQ(score.bits_per_byte(),
                       score.nats / std::log(2) / static_cast<double>(score.bytes));
    }
  }
}

TEST_F(Validation, TheBatchMakesNoDifference) {
  const auto data = make_data(6);
  const TinyModel tiny("jurassic", model::Precision::fp64, kVocabulary, kContext);
  const Score one = evaluate(tiny.transformer, data, 0, 1, 0, true);
  const Score many = evaluate(tiny.transformer, data, 0, 64, 0, true);
  EXPECT_NEAR(one.nats / many.nats, 1, 1e-12);
  const Score some = evaluate(tiny.transformer, data, 3, 2, 0, true);
  EXPECT_EQ(some.tokens, 3 * kContext);
}

TEST_F(Validation, LeavesGradientsAlone) {
  const auto data = make_data(4);
  const TinyModel tiny("jurassic", model::Precision::fp32, kVocabulary, kContext, true);
  tiny.memory.gradients().fill_(3);
  const at::Tensor before = tiny.memory.weights().clone();
  evaluate(tiny.transformer, data, 0, 4, 0, false);
  EXPECT_TRUE(tiny.memory.gradients().eq(3).all().item<bool>());
  EXPECT_TRUE(tiny.memory.weights().equal(before));
}

TEST(DocumentBeginnings, AnEndBelongsToTheDocumentItEnds) {
  const at::Tensor tokens = at::tensor({5, 0, 7, 8, 0, 0}, at::kInt).unsqueeze(0);
  EXPECT_TRUE(document_beginnings(tokens, 0).equal(
      at::tensor({0, 0, 2, 2, 2, 5}, at::kInt).unsqueeze(0)));
}

}  // namespace
}  // namespace sauropod::eval

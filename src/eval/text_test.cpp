#include "eval/text.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "eval/load.h"
#include "eval/test_support.h"

namespace sauropod::eval {
namespace {

std::string document(size_t words, size_t salt) {
  std::string text;
  for (size_t i = 0; i < words; ++i)
    text += (i * salt) % 5 == 0 ? " of the" : (i + salt) % 3 == 0 ? " the\n" : "\xffy\xc3\xa9.";
  return text;
}

// −ln p of a document by the rule: each token from the window that counts it.
double reference_nats(const model::Transformer& model, const tokenizer::Tokenizer& tokenizer,
                      std::string_view text) {
  const at::NoGradGuard no_grad;
  std::vector<int32_t> ids{0};
  tokenizer.encode(text, ids);
  ids.push_back(0);
  const size_t context = static_cast<size_t>(model.options().context), half = context / 2;
  double nats = 0;
  for (size_t t = 1; t < ids.size(); ++t) {
    // The token's input is position t − 1; window k holds [k·half, k·half + context).
    size_t begin = 0;
    while (t - 1 >= begin + context) begin += half;
    const std::vector<int32_t> input(ids.begin() + static_cast<long>(begin),
                                     ids.begin() + static_cast<long>(t));
    const at::Tensor states = model.states({at::tensor(input, at::kInt).unsqueeze(0), {}, {}});
    const at::Tensor last = model.logits(states.narrow(0, states.size(0) - 1, 1));
    nats -= at::log_softmax(last, 1)[0][ids[t]].item<double>();
  }
  return nats;
}

TEST(Text, CountsEveryByteOnceWithHalfAContextBefore) {
  const tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  for (const char* family : {"jurassic", "llama"})
    for (const int64_t context : {8, 9}) {
      const TinyModel tiny(family, model::Precision::fp64, tokenizer.size() + 3, context);
      TextScorer scorer(tiny.transformer, tokenizer, 3);
      double expected = 0;
      int64_t bytes = 0, tokens = 0;
      for (const size_t words : {1, 3, 40, 0, 7}) {
        const std::string text = document(words, words + 1);
        scorer.add(text);
        if (text.empty()) continue;
        expected += reference_nats(tiny.transformer, tokenizer, text);
        bytes += static_cast<int64_t>(text.size());
        tokens += static_cast<int64_t>(tokenizer.encode(text).size()) + 1;
      }
      const Score score = scorer.finish();
      EXPECT_EQ(scorer.documents(), 4);
      EXPECT_EQ(score.bytes, bytes);
      EXPECT_EQ(score.tokens, tokens);
      EXPECT_NEAR(score.nats / expected, 1, 1e-10) << family << ' ' << context;
    }
}

TEST(Text, ManyDocumentsPassThroughThePool) {
  const tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  const TinyModel tiny("jurassic", model::Precision::fp64, tokenizer.size(), 8);
  TextScorer together(tiny.transformer, tokenizer, 2);
  Score apart;
  for (size_t i = 1; i < 50; ++i) {
    const std::string text = document(i % 11 + 1, i);
    together.add(text);
    TextScorer one(tiny.transformer, tokenizer, 1);
    one.add(text);
    apart += one.finish();
  }
  const Score score = together.finish();
  EXPECT_EQ(score.tokens, apart.tokens);
  EXPECT_EQ(score.bytes, apart.bytes);
  EXPECT_NEAR(score.nats / apart.nats, 1, 1e-12);
}

TEST(Load, GivesTheModelThatWasSaved) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  for (const char* family : {"jurassic", "llama"}) {
    const TinyModel tiny(family, model::Precision::fp32, tokenizer.size(), 16);
    const std::string path = (folder.path() / family).string();
    save(tiny, tokenizer, path);
    const LoadedModel loaded = load(path, "fp32");
    EXPECT_EQ(loaded.step, 7);
    EXPECT_EQ(loaded.options, tiny.options);
    EXPECT_EQ(loaded.tokenizer.hash(), tokenizer.hash());
    EXPECT_TRUE(loaded.memory->weights().equal(tiny.memory.weights()));
    EXPECT_FALSE(loaded.memory->gradients().defined());
    const LoadedModel rounded = load(path, "bf16");
    EXPECT_FALSE(rounded.memory->low().defined());
    EXPECT_TRUE(rounded.memory->weights().allclose(tiny.memory.weights().to(at::kBFloat16), 1e-2, 0));
  }
}

TEST(Load, RefusesAnotherShapeAndUnknownPrecision) {
  const TemporaryFolder folder;
  const tokenizer::Tokenizer tokenizer = tiny_tokenizer();
  TinyModel tiny("jurassic", model::Precision::fp32, tokenizer.size(), 16);
  tiny.options.context = 32;
  save(tiny, tokenizer, folder.path().string());
  try {
    load(folder.path().string());
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("embedding.position.weight"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(load(folder.path().string(), "fp16"), base::Error);
  EXPECT_THROW(load((folder.path() / "nothing").string()), base::Error);
}

}  // namespace
}  // namespace sauropod::eval

#include "data/training_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.h"
#include "data/validation_data.h"

namespace sauropod::data {
namespace {

namespace fs = std::filesystem;

class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "training_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A corpus of `documents` documents, 0 to 40 tokens and the end-of-document item 0 each; every
  // other token is a number of its own, counted from `first`. Returns the prefix.
  std::string corpus(const std::string& name, int documents, int32_t first = 1) {
    formats::IndexedDatasetWriter writer(folder_ / name, formats::TokenType::int32);
    for (int d = 0; d < documents; ++d) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < d * 7 % 41; ++i) tokens.push_back(first++);
      tokens.push_back(0);
      writer.add_document(tokens, name);
    }
    writer.finish();
    writer.commit();
    return (folder_ / name).string();
  }

  static std::vector<int32_t> sample(const TrainingData& data, uint64_t index) {
    std::vector<int32_t> out(static_cast<size_t>(data.context()) + 1);
    data.sample(index, out);
    return out;
  }

  template <typename F>
  static std::string error_of(const F& work) {
    try {
      work();
    } catch (const base::Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Quotas, AreLargestRemainders) {
  EXPECT_EQ(slot_quotas({1}), (std::vector<uint64_t>{4096}));
  EXPECT_EQ(slot_quotas({1, 1, 1}), (std::vector<uint64_t>{1366, 1365, 1365}));
  EXPECT_EQ(slot_quotas({0.5, 0.3, 0.2}), (std::vector<uint64_t>{2048, 1229, 819}));
  EXPECT_EQ(slot_quotas({1e12, 1}), (std::vector<uint64_t>{4096, 0}));
  std::vector<double> weights;
  for (int i = 1; i <= 100; ++i) weights.push_back(1.0 / i);
  const auto quotas = slot_quotas(weights);
  EXPECT_EQ(std::accumulate(quotas.begin(), quotas.end(), uint64_t{0}), kSlotsPerBlock);
}

TEST(SlotOrder, GivesEachBlockExactlyItsQuotasAndEachSampleOnce) {
  const std::vector<uint64_t> quotas = {2048, 1229, 0, 819};
  const Slots slots(quotas, 7);
  std::vector<std::set<uint64_t>> seen(4);
  for (uint64_t block = 0; block < 5; ++block) {
    std::vector<uint64_t> counts(4);
    for (uint64_t i = 0; i < kSlotsPerBlock; ++i) {
      const auto place = slots.place(block * kSlotsPerBlock + i);
      ++counts[place.corpus];
      EXPECT_TRUE(seen[place.corpus].insert(place.index).second);
    }
    EXPECT_EQ(counts, quotas);
    for (size_t c = 0; c < 4; ++c) {  // no index is left out
      EXPECT_EQ(seen[c].size(), quotas[c] * (block + 1));
      if (quotas[c] > 0) {
        EXPECT_EQ(*seen[c].rbegin(), quotas[c] * (block + 1) - 1);
      }
    }
  }
  const Slots other(quotas, 8);
  int same = 0;
  for (uint64_t i = 0; i < 4096; ++i) same += slots.place(i) == other.place(i);
  EXPECT_LT(same, 40);
  // A number far out still works.
  EXPECT_LT(slots.place(uint64_t{1} << 60).corpus, 4u);
}

TEST_F(Training, EveryTokenIsATargetOnceAnEpoch) {
  const std::string prefix = corpus("a", 321);
  const formats::IndexedDataset dataset(prefix);
  constexpr int64_t kContext = 32;
  const TrainingData data({{prefix}}, kContext, 3);
  const uint64_t tokens = dataset.tokens();
  // Samples by their place in the corpus: the stream, window by window.
  constexpr uint64_t kEpochs = 3;
  std::vector<int32_t> stream;
  std::vector<std::vector<int32_t>> windows(kSlotsPerBlock);
  for (uint64_t i = 0; i < kSlotsPerBlock; ++i) windows[data.place(i).index] = sample(data, i);
  for (uint64_t i = 0; stream.size() < tokens * kEpochs; ++i) {
    if (i > 0) {
      EXPECT_EQ(windows[i].front(), windows[i - 1].back());
    }
    stream.insert(stream.end(), windows[i].begin(), windows[i].end() - 1);
  }
  std::vector<int32_t> expected(tokens);
  dataset.read(0, expected);
  std::vector<std::vector<int32_t>> epochs;
  for (uint64_t e = 0; e < kEpochs; ++e) {
    const auto begin = stream.begin() + static_cast<int64_t>(e * tokens);
    epochs.emplace_back(begin, begin + static_cast<int64_t>(tokens));
    // Whole documents, in some order: numbers within one ascend by 1, and 0 ends it.
    for (size_t i = 1; i < epochs[e].size(); ++i) {
      if (epochs[e][i] != 0 && epochs[e][i - 1] != 0) {
        EXPECT_EQ(epochs[e][i], epochs[e][i - 1] + 1);
      }
    }
    auto sorted = epochs[e];
    std::sort(sorted.begin(), sorted.end());
    auto wanted = expected;
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(sorted, wanted);
    EXPECT_NE(epochs[e], expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST_F(Training, SamplesArePureAndThreadSafe) {
  const std::vector<CorpusOptions> options = {{corpus("a", 100), 3},
                                              {corpus("b", 2000, 100000), 1}};
  const TrainingData data(options, 24, 11);
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 6000; ++i) expected.push_back(sample(data, i));
  const TrainingData again(options, 24, 11);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 6000; ++i) {
        const uint64_t index = (t % 2 == 0 ? i * 4001 : 6000 - 1 - i + t) % 6000;
        wrong += sample(again, index) != expected[index];
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  const TrainingData other(options, 24, 12);
  EXPECT_NE(sample(other, 0), expected[0]);
  // Each sample is of one corpus, in the proportion of the weights.
  int first = 0;
  for (uint64_t i = 0; i < kSlotsPerBlock; ++i) {
    const bool big = *std::max_element(expected[i].begin(), expected[i].end()) >= 100000;
    EXPECT_EQ(big, data.place(i).corpus == 1);
    first += !big;
  }
  EXPECT_EQ(first, 3072);
}

// The hash comes from a separate program, in Python, written from docs/data.md alone. Another order
// would break every run that is to be resumed.
TEST_F(Training, OrderIsTheOneDocumented) {
  const TrainingData data({{corpus("a", 100), 3}, {corpus("b", 2000, 100000), 1}}, 24, 11);
  base::Hasher hasher;
  for (const uint64_t index : {0, 1, 2, 3, 4, 4095, 4096, 123456}) {
    const auto tokens = sample(data, index);
    hasher.update(tokens.data(), tokens.size() * sizeof(int32_t));
  }
  EXPECT_EQ(data.place(123456), (Slots::Place{0, 93620}));
  EXPECT_EQ(hasher.digest(), "ccb4de9072ce93f602ab4a3f93a9b190");
}

TEST_F(Training, FarSamplesNeedNoNarrowIntegers) {
  const std::string prefix = corpus("a", 50);
  const TrainingData data({{prefix}}, 16, 1);
  const uint64_t tokens = data.tokens();
  const uint64_t index = uint64_t{1} << 45;
  const auto tokens_far = sample(data, index);
  const uint64_t begin = data.place(index).index * 16;
  EXPECT_GT(begin, uint64_t{1} << 48);
  EXPECT_EQ(sample(data, index), tokens_far);
  EXPECT_GT(begin / tokens, uint64_t{1} << 32);  // epochs beyond 32 bits
}

TEST_F(Training, DescribesWhatDecidesTheSamples) {
  const std::string a = corpus("a", 60), b = corpus("b", 30, 5000);
  const TrainingData data({{a}, {b}}, 8, 5);
  const auto described = data.describe();
  EXPECT_EQ(described["corpora"][0]["documents"], 60);
  EXPECT_EQ(
      described["corpora"][0]["quota"].get<int>() + described["corpora"][1]["quota"].get<int>(),
      4096);
  EXPECT_EQ(data_difference(described, TrainingData({{a}, {b}}, 8, 5).describe()), "");
  EXPECT_NE(data_difference(described, TrainingData({{a}, {b}}, 8, 6).describe()), "");
  EXPECT_NE(data_difference(described, TrainingData({{a}, {b}}, 9, 5).describe()), "");
  EXPECT_NE(data_difference(described, TrainingData({{a}}, 8, 5).describe()), "");
  EXPECT_NE(data_difference(described, TrainingData({{a, 1}, {b, 1}}, 8, 5).describe()), "");
  fs::rename(a + ".bin", folder_ / "moved.bin");
  fs::rename(a + ".idx", folder_ / "moved.idx");
  const std::string moved = (folder_ / "moved").string();
  EXPECT_EQ(data_difference(described, TrainingData({{moved}, {b}}, 8, 5).describe()), "");
  corpus("moved", 60, 2);
  expect_parts(data_difference(described, TrainingData({{moved}, {b}}, 8, 5).describe()),
               {"corpus 1", "moved", "other data"});
}

TEST_F(Training, BadInputIsExplained) {
  const std::string a = corpus("a", 5), big = corpus("big", 20000);
  const auto open = [](std::vector<CorpusOptions> options, int64_t context,
                       int64_t vocabulary = 0) {
    return error_of([&] {
      const TrainingData data(options, context, 1, vocabulary);
      for (uint64_t i = 0; i < 100; ++i) sample(data, i);
    });
  };
  EXPECT_EQ(open({{a}}, 16), "no error");
  expect_parts(open({}, 16), {"no training data"});
  expect_parts(open({{a}}, 4000), {a.c_str(), "tokens", "4001", "shorten the context"});
  expect_parts(open({{(folder_ / "none").string()}}, 16), {"none.idx", "sauropod data pack"});
  expect_parts(open({{a, 1}, {big}}, 16), {"1 of 2 corpora have a weight"});
  expect_parts(open({{a, -1}}, 16), {"weight", "-1"});
  expect_parts(open({{a, 1}, {big, 1e6}}, 16), {a.c_str(), "never be read"});
  const std::string tiny = corpus("tiny", 3);
  expect_parts(open({{tiny}, {big}}, 16), {tiny.c_str(), "never be read"});
  expect_parts(open({{a}}, 16, 20), {"a.bin", "outside the vocabulary of 20 items"});
  corpus("train", 5);
  expect_parts(open({{folder_.string()}}, 16), {"folder of packed data", "/train"});
  base::write_file_atomically(
      folder_ / "pack.json",
      R"({"tokenizer":{"hash":"aa"},"splits":{"train":{"tokens":1,"documents":5}}})");
  expect_parts(open({{(folder_ / "train").string()}}, 16), {"pack.json", "interrupted"});
  EXPECT_EQ(open({{a}}, 16), "no error");
  base::write_file_atomically(folder_ / "pack.json", "{");
  expect_parts(open({{(folder_ / "train").string()}}, 16), {"pack.json is damaged"});
}

TEST_F(Training, KnowsTheTokenizerOfItsData) {
  const std::string train = corpus("train", 3);
  const formats::IndexedDataset dataset(train);
  base::write_file_atomically(
      folder_ / "pack.json",
      fmt::format(
          R"({{"tokenizer":{{"hash":"aa"}},"splits":{{"train":{{"tokens":{},"documents":3}}}}}})",
          dataset.tokens()));
  const TrainingData data({{train}}, 4, 1);
  EXPECT_EQ(error_of([&] { data.check_tokenizer("aa"); }), "no error");
  expect_parts(error_of([&] { data.check_tokenizer("bb"); }), {"another tokenizer", "aa", "bb"});
}

TEST_F(Training, ValidationCoversEveryTokenOnceWithItsBytes) {
  const std::string prefix = corpus("valid", 40);
  const formats::IndexedDataset dataset(prefix);
  std::vector<int32_t> all(dataset.tokens());
  dataset.read(0, all);
  const int32_t largest = *std::max_element(all.begin(), all.end());
  std::vector<int32_t> item_bytes(static_cast<size_t>(largest) + 1);
  for (size_t i = 1; i < item_bytes.size(); ++i) item_bytes[i] = static_cast<int32_t>(i % 9);
  int64_t expected_bytes = 0;
  for (const int32_t id : all) expected_bytes += item_bytes[static_cast<size_t>(id)];
  for (const int64_t context : {1, 7, 64, 100000}) {
    const ValidationData data(prefix, context, item_bytes, 0);
    std::vector<int32_t> targets, out(static_cast<size_t>(context) + 1);
    int64_t bytes = 0;
    int32_t before = 0;
    for (int64_t i = 0; i < data.windows(); ++i) {
      const auto window = data.window(i, out);
      EXPECT_EQ(out[0], before);
      targets.insert(targets.end(), out.begin() + 1, out.begin() + 1 + window.targets);
      EXPECT_TRUE(
          std::all_of(out.begin() + 1 + window.targets, out.end(), [](int t) { return t == 0; }));
      before = targets.back();
      bytes += window.bytes;
    }
    EXPECT_EQ(targets, all);
    EXPECT_EQ(bytes, expected_bytes);
  }
  const ValidationData data(prefix, 7, item_bytes, 0);
  const auto chosen = data.spread(10);
  EXPECT_EQ(chosen.size(), 10u);
  EXPECT_EQ(std::set<int64_t>(chosen.begin(), chosen.end()).size(), 10u);
  EXPECT_GE(chosen.back(), data.windows() * 8 / 10);
  EXPECT_EQ(data.spread(1 << 30).size(), static_cast<size_t>(data.windows()));
  const std::string empty = corpus("none", 0);
  expect_parts(error_of([&] { ValidationData(empty, 7, item_bytes, 0); }), {"no tokens"});
}

}  // namespace
}  // namespace sauropod::data

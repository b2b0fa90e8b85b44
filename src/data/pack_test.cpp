#include "data/pack.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "data/inspect.h"

namespace sauropod::data {
namespace {

namespace fs = std::filesystem;

// Each byte is an item.
Encoder byte_encoder() {
  return {.encode =
              [](std::string_view text, std::vector<int32_t>& out) {
                for (const char c : text) out.push_back(static_cast<unsigned char>(c) + 1);
              },
          .bytes_of =
              [](int32_t id) {
                static const std::string newline = "\n", other = "x";
                return std::string_view(id == '\n' + 1 ? newline : other);
              },
          .vocabulary = 257,
          .end_of_document = 0,
          .hash = "bytes"};
}

class Pack : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pack_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    out_ = folder_ / "out";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string text(int i) {
    return std::string(static_cast<size_t>(i * 31 % 977), static_cast<char>('a' + i % 26)) + " " +
           std::to_string(i) + " \xFF";
  }
  std::string json_lines(const std::string& name, int from, int to) {
    std::string lines;
    for (int i = from; i < to; ++i) lines += "{\"text\":\"" + text(i) + "\"}\n";
    return put(name, lines);
  }
  std::string put(const std::string& name, const std::string& bytes) {
    base::write_file_atomically(folder_ / name, bytes);
    return (folder_ / name).string();
  }
  PackResult run(std::vector<std::string> inputs, double fraction = 0.05, int threads = 2) {
    return pack(
        byte_encoder(),
        {.inputs = std::move(inputs), .out = out_, .valid_fraction = fraction, .threads = threads});
  }
  std::string error_of(const std::vector<std::string>& inputs, double fraction = 0.05) {
    try {
      run(inputs, fraction);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "no error";
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> files;
    if (!fs::exists(out_)) return files;
    for (const auto& entry : fs::directory_iterator(out_))
      files[entry.path().filename().string()] = base::read_file(entry.path());
    return files;
  }
  std::vector<std::string> texts(const std::string& side) const {
    const formats::IndexedDataset dataset(out_ / side);
    std::vector<std::string> texts;
    for (uint64_t d = 0; d < dataset.documents(); ++d) {
      const uint64_t begin = dataset.document_begin(d);
      std::vector<int32_t> tokens(dataset.document_begin(d + 1) - begin);
      dataset.read(begin, tokens);
      EXPECT_EQ(tokens.back(), 0);
      std::string text;
      for (size_t i = 0; i + 1 < tokens.size(); ++i)
        text.push_back(static_cast<char>(tokens[i] - 1));
      texts.push_back(text);
    }
    return texts;
  }

  fs::path folder_, out_;
};

TEST_F(Pack, KeepsEveryDocumentOnceInOrderAndCounts) {
  const auto result = run({json_lines("a.jsonl", 0, 3000), put("empty.txt", "")});
  EXPECT_EQ(result.empty_documents, 1u);
  EXPECT_EQ(result.train.documents + result.valid.documents, 3000u);
  EXPECT_GT(result.valid.documents, 100u);
  EXPECT_LT(result.valid.documents, 200u);
  uint64_t bytes = 0;
  std::multiset<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    bytes += text(i).size();
    expected.insert(text(i));
  }
  const auto train = texts("train"), valid = texts("valid");
  std::multiset<std::string> packed(train.begin(), train.end());
  packed.insert(valid.begin(), valid.end());
  EXPECT_EQ(packed, expected);
  // Both sides keep the order of the input, but for the few that were kept back at first.
  const auto number = [](const std::string& text) {
    return std::stoi(text.substr(text.find(' ') + 1));
  };
  int backward = 0;
  for (size_t i = 1; i < train.size(); ++i) backward += number(train[i]) < number(train[i - 1]);
  EXPECT_LT(backward, 20);
  for (size_t i = 1; i < valid.size(); ++i) EXPECT_GT(number(valid[i]), number(valid[i - 1]));
  EXPECT_EQ(result.train.bytes + result.valid.bytes, bytes);
  EXPECT_EQ(result.train.tokens + result.valid.tokens, bytes + 3000);
  const Corpus corpus = open_corpus(out_ / "train");
  EXPECT_EQ(corpus.tokenizer_hash, "bytes");
  const auto seen = inspect(corpus, 257);
  EXPECT_EQ(seen["tokens"], result.train.tokens);
  EXPECT_EQ(seen["verified"], true);
  EXPECT_EQ(seen["largest_id"], 256);
  EXPECT_EQ(nlohmann::json::parse(files().at("pack.json"))["splits"]["valid"]["documents"],
            result.valid.documents);
}

TEST_F(Pack, FilesDoNotDependOnTheNumberOfThreads) {
  const std::vector<std::string> inputs = {json_lines("a.jsonl", 0, 9000),
                                           put("big.txt", std::string(3000000, 'x'))};
  run(inputs, 0.05, 1);
  const auto expected = files();
  EXPECT_EQ(expected.size(), 5u);
  for (const int threads : {2, 3, 8}) {
    run(inputs, 0.05, threads);
    EXPECT_EQ(files(), expected) << threads;
  }
}

TEST_F(Pack, SplitIsStableWhenDocumentsAreAddedAndDuplicatesStayTogether) {
  const std::string first = json_lines("a.jsonl", 0, 1500);
  run({first});
  const auto held = texts("valid");
  const std::string more = json_lines("0.jsonl", 1000, 4000);  // 500 duplicates
  run({more, first});
  const auto train = texts("train"), valid = texts("valid");
  const std::set<std::string> in_train(train.begin(), train.end()),
      in_valid(valid.begin(), valid.end());
  EXPECT_EQ(train.size() + valid.size(), 4500u);
  for (const auto& text : held) EXPECT_TRUE(in_valid.contains(text));
  for (const auto& text : in_valid) EXPECT_FALSE(in_train.contains(text));
  // A larger part holds the smaller one.
  run({more, first}, 0.2);
  const auto larger = texts("valid");
  const std::set<std::string> in_larger(larger.begin(), larger.end());
  for (const auto& text : in_valid) EXPECT_TRUE(in_larger.contains(text));
}

TEST_F(Pack, SmallInputsStillHoldOneOut) {
  std::vector<std::string> inputs;
  for (const char* name : {"a", "b", "c", "d"})
    inputs.push_back(put(name, std::string("text ") + name));
  inputs.push_back(put("e", "text b"));
  const auto result = run(inputs, 1e-6);
  EXPECT_EQ(result.held_out, HeldOut::smallest_hash);
  const auto valid = texts("valid"), train = texts("train");
  EXPECT_EQ(valid.size() + train.size(), 5u);
  EXPECT_EQ(std::set<std::string>(valid.begin(), valid.end()).size(), 1u);
  EXPECT_EQ(std::count(train.begin(), train.end(), valid[0]), 0);
  std::reverse(inputs.begin(), inputs.end());
  run(inputs, 1e-6);
  EXPECT_EQ(texts("valid"), valid);
}

TEST_F(Pack, OfASingleDocumentTheEndIsHeldOut) {
  std::string whole;
  for (int i = 0; i < 500; ++i) whole += "line " + std::to_string(i) + "\n";
  const std::string path = put("one.txt", whole);
  const auto result = run({path}, 0.1);
  EXPECT_EQ(result.held_out, HeldOut::end_of_document);
  ASSERT_EQ(texts("train").size(), 1u);
  ASSERT_EQ(texts("valid").size(), 1u);
  const std::string train = texts("train")[0], valid = texts("valid")[0];
  EXPECT_EQ(train + valid, whole);
  EXPECT_EQ(train.back(), '\n');
  EXPECT_NEAR(static_cast<double>(valid.size()), 0.1 * static_cast<double>(whole.size()), 10);
  EXPECT_EQ(result.train.bytes, train.size());
  EXPECT_EQ(result.valid.bytes, valid.size());
}

TEST_F(Pack, NothingIsHeldOutOnRequest) {
  run({json_lines("a.jsonl", 0, 500)});
  EXPECT_EQ(files().size(), 5u);
  const auto result = run({json_lines("a.jsonl", 0, 500)}, 0);
  EXPECT_EQ(result.train.documents, 500u);
  EXPECT_EQ(files().size(), 3u);  // the old held-out side is gone
}

TEST_F(Pack, FailuresLeaveTheOldPackingAndNoRemains) {
  const std::string good = json_lines("a.jsonl", 0, 2000);
  run({good});
  const auto before = files();
  const std::string bad = put("bad.jsonl", "{\"text\":\"x\"}\n{\"txt\":\"y\"}\n");
  EXPECT_NE(error_of({good, bad}).find("bad.jsonl:2"), std::string::npos);
  EXPECT_NE(error_of({put("one.txt", "w")}).find("single document"), std::string::npos);
  EXPECT_NE(error_of({put("two.txt", "")}).find("are empty"), std::string::npos);
  EXPECT_NE(error_of({put("none.jsonl", "\n")}).find("no documents"), std::string::npos);
  EXPECT_NE(error_of({good}, 1).find("--valid-fraction 1"), std::string::npos);
  EXPECT_NE(error_of({put("one.txt", "words")}, 0.9999999).find("held-out side"),
            std::string::npos);
  auto encoder = byte_encoder();
  encoder.encode = [](std::string_view text, std::vector<int32_t>&) {
    if (text.find("1777") != std::string_view::npos) base::fail("cannot encode");
  };
  EXPECT_THROW(pack(encoder, {.inputs = {good}, .out = out_, .threads = 3}), base::Error);
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace sauropod::data

#include "formats/documents.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "formats/json_field.h"

namespace sauropod::formats {
namespace {

namespace fs = std::filesystem;

std::string zstd(std::string_view text) {
  std::string packed(::ZSTD_compressBound(text.size()), '\0');
  packed.resize(::ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  return packed;
}

std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

class Documents : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "documents_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string put(const std::string& name, std::string_view bytes) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    base::write_file_atomically(path, bytes);
    return path.string();
  }

  static std::vector<std::pair<std::string, std::string>> read(
      const std::vector<std::string>& paths, const std::string& field = "text") {
    std::vector<std::pair<std::string, std::string>> documents;
    for (const InputFile& input : list_inputs(paths))
      read_documents(input, {.field = field}, [&](std::string_view name, std::string_view text) {
        documents.emplace_back(name, text);
      });
    return documents;
  }

  static std::string error_of(const std::vector<std::string>& paths) {
    try {
      read(paths);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(Documents, FoldersAreWalkedInByteOrderWithoutHiddenNames) {
  for (const char* name : {"b/z", "b/a", "B", "a.txt", "a/x", ".hidden", ".git/x"}) put(name, name);
  fs::create_symlink(folder_, folder_ / "b" / "loop");
  fs::create_symlink(folder_ / "a", folder_ / "c");
  fs::create_symlink(folder_ / "nowhere", folder_ / "dangling");
  std::vector<std::string> names;
  for (const auto& input : list_inputs({folder_.string()}))
    names.push_back(fs::path(input.path).lexically_relative(folder_).string());
  EXPECT_EQ(names, (std::vector<std::string>{"B", "a.txt", "a/x", "b/a", "b/z", "c/x"}));
}

TEST_F(Documents, BytesPassUnchanged) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  bytes += "\xC3\r\n\xFF";
  const auto documents =
      read({put("a", bytes), put("b.gz", gzip(bytes)), put("c.txt.zst", zstd(bytes))});
  ASSERT_EQ(documents.size(), 3u);
  for (const auto& [name, text] : documents) EXPECT_EQ(text, bytes) << name;
}

TEST_F(Documents, LargeFilesAreStreamedThroughEveryBoundary) {
  std::string lines, whole;
  for (int i = 0; i < 60000; ++i) {
    const std::string text = std::string(static_cast<size_t>(i % 37), 'x') + std::to_string(i);
    lines += "{\"id\": " + std::to_string(i) + ", \"text\": \"" + text + "\"}\n";
    whole += text + "\n";
  }
  const std::string half = lines.substr(0, lines.size() / 2), rest = lines.substr(half.size());
  for (const std::string& path :
       {put("a.jsonl", lines), put("b.jsonl.gz", gzip(half) + gzip(rest) + std::string(64, '\0')),
        put("c.ndjson.zst", zstd(half) + zstd(rest))}) {
    std::string joined;
    for (const auto& [name, text] : read({path})) joined += text + "\n";
    EXPECT_EQ(joined, whole) << path;
  }
}

TEST_F(Documents, JsonLinesKnowTheirLinesAndField) {
  const auto path =
      put("a.jsonl",
          "\xEF\xBB\xBF{\"body\":\"one\"}\r\n\n  \n{\"x\":{\"body\":1},\"body\":\"two\\u0000"
          "\\ud83d\\ude00 \xFF\"}");
  const auto documents = read({path}, "body");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0], (std::pair<std::string, std::string>{path + ":1", "one"}));
  EXPECT_EQ(documents[1].first, path + ":4");
  EXPECT_EQ(documents[1].second, std::string("two\0\xF0\x9F\x98\x80 \xFF", 10));
}

TEST_F(Documents, ErrorsSayWhatAndWhere) {
  fs::create_directories(folder_ / "empty/.git");
  const auto expect = [](const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error_of({(folder_ / "empty").string()}), {"empty", "looked in it", ".jsonl"});
  expect(error_of({(folder_ / "gone").string()}), {"gone", "check the path"});
  const auto json = [&](const char* line) {
    return error_of({put("j.jsonl", std::string("{\"text\":\"\"}\n") + line + "\n")});
  };
  expect(json("[1]"), {"j.jsonl:2", "is not a JSON object"});
  expect(json("{\"a\":1}"), {"j.jsonl:2", "has no field 'text'", "--field"});
  expect(json("{\"text\":null}"), {"j.jsonl:2", "has null in field 'text'"});
  expect(json("{\"text\":\"a"), {"j.jsonl:2", "ends inside a string"});
  expect(json("plain words"), {"j.jsonl:2", "not valid JSON"});
  std::string noise;
  for (uint32_t i = 0, x = 1; i < 100000; ++i)
    noise.push_back(static_cast<char>((x = x * 1664525 + 1013904223) >> 24));
  for (const auto& [ending, packed] :
       {std::pair{"t.zst", zstd(noise)}, std::pair{"t.gz", gzip(noise)}}) {
    for (const size_t length : {size_t{0}, size_t{5}, packed.size() / 2, packed.size() - 1})
      expect(error_of({put(ending, packed.substr(0, length))}), {ending, "cut short"});
    std::string damaged = packed;
    damaged[1] ^= 1;
    expect(error_of({put(ending, damaged)}), {ending, "damaged"});
    expect(error_of({put(ending, packed + "trailing words")}), {ending, "damaged"});
  }
}

TEST(JsonField, TakesTheWholeGrammarAndNothingElse) {
  std::string text;
  const auto find = [&text](std::string_view line) { return read_json_field(line, "t", text); };
  EXPECT_EQ(
      find(R"( { "a":[1,-0.5e+3,[],{}],"b":{"t":"no"},"t":"x","c":[true,false,null,"\u00e9"]} )"),
      "");
  EXPECT_EQ(text, "x");
  EXPECT_EQ(find(R"({"t":"first","\u0074":"last\n\\\/\"\ud800"})"), "");
  EXPECT_EQ(text, "last\n\\/\"\xED\xA0\x80");
  for (const char* bad :
       {"", "{", "{\"t\":\"x\"", "{\"t\":\"x\",}", "{\"t\" \"x\"}", "{\"t\":\"x\"} y", "{t:\"x\"}",
        "{\"t\":01}", "{\"t\":1.}", "{\"t\":tru}", "{\"t\":\"\\q\"}", "{\"t\":\"\\u12g4\"}",
        "{\"t\":\"a\tb\"}", "{\"t\":'x'}", "{\"a\":[1 2],\"t\":\"x\"}"})
    EXPECT_NE(find(bad).find("not valid JSON"), std::string::npos) << bad;
  EXPECT_NE(find("{\"a\":" + std::string(100000, '[') + "}").find("too deeply"), std::string::npos);
}

}  // namespace
}  // namespace sauropod::formats

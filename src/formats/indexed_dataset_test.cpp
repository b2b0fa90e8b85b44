#include "formats/indexed_dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "base/error.h"

namespace sauropod::formats {
namespace {

namespace fs = std::filesystem;

class Indexed : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "indexed_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    prefix_ = folder_ / "data";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::vector<std::vector<int32_t>>& documents, TokenType type) {
    IndexedDatasetWriter writer(prefix_, type);
    for (const auto& document : documents) writer.add_document(document, "test");
    writer.finish();
    writer.commit();
  }
  std::string index() { return base::read_file(folder_ / "data.idx"); }
  void put_index(const std::string& bytes) {
    base::write_file_atomically(folder_ / "data.idx", bytes);
  }
  std::string error() {
    try {
      IndexedDataset dataset(prefix_);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_, prefix_;
};

template <typename T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

TEST_F(Indexed, WritesTheLayoutByteForByte) {
  write({{1, 2, 3}, {}, {65535}}, TokenType::uint16);
  EXPECT_EQ(base::read_file(folder_ / "data.bin"), std::string("\x01\0\x02\0\x03\0\xFF\xFF", 8));
  std::string expected("MMIDIDX\0\0", 9);
  expected += bytes_of<uint64_t>(1) + bytes_of<uint8_t>(8);
  expected += bytes_of<uint64_t>(3) + bytes_of<uint64_t>(4);
  for (const int32_t length : {3, 0, 1}) expected += bytes_of(length);
  for (const int64_t offset : {0, 6, 6}) expected += bytes_of(offset);
  for (const int64_t first : {0, 1, 2, 3}) expected += bytes_of(first);
  EXPECT_EQ(index(), expected);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

TEST_F(Indexed, ReadsBackBothTypesAcrossManyBlocks) {
  for (const TokenType type : {TokenType::uint16, TokenType::int32}) {
    std::vector<std::vector<int32_t>> documents(140000, std::vector<int32_t>{7});
    documents[5].resize(300000);
    std::iota(documents[5].begin(), documents[5].end(), 0);
    for (auto& token : documents[5]) token %= type == TokenType::int32 ? 262144 : 65536;
    write(documents, type);
    const IndexedDataset dataset(folder_ / "data.bin");
    EXPECT_EQ(dataset.type(), type);
    ASSERT_EQ(dataset.documents(), documents.size());
    EXPECT_EQ(dataset.tokens(), 300000u + 139999u);
    std::vector<int32_t> read(300000);
    EXPECT_EQ(dataset.document_begin(5), 5u);
    dataset.read(5, read);
    EXPECT_EQ(read, documents[5]);
    EXPECT_EQ(dataset.document_begin(139999), dataset.tokens() - 1);
    EXPECT_EQ(dataset.document_begin(140000), dataset.tokens());
  }
}

TEST_F(Indexed, ReadsDocumentsOfSeveralSequencesAndOtherTypes) {
  std::string bytes("MMIDIDX\0\0", 9);
  bytes +=
      bytes_of<uint64_t>(1) + bytes_of<uint8_t>(5) + bytes_of<uint64_t>(3) + bytes_of<uint64_t>(4);
  for (const int32_t length : {1, 2, 1}) bytes += bytes_of(length);
  for (const int64_t offset : {0, 8, 24}) bytes += bytes_of(offset);
  for (const int64_t first : {0, 2, 2, 3}) bytes += bytes_of(first);
  put_index(bytes);
  std::string data;
  for (const int64_t token : {5, 6, 7, 8}) data += bytes_of(token);
  base::write_file_atomically(folder_ / "data.bin", data);
  const IndexedDataset dataset(prefix_);
  EXPECT_EQ(dataset.documents(), 3u);
  EXPECT_EQ(dataset.document_begin(1), 3u);
  EXPECT_EQ(dataset.document_begin(2), 3u);
  std::vector<int32_t> tokens(4);
  dataset.read(0, tokens, 9);
  EXPECT_EQ(tokens, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_THROW(dataset.read(0, tokens, 8), base::Error);
}

TEST_F(Indexed, EveryDamageIsNamed) {
  write({{1, 2, 3}, {4, 5}}, TokenType::int32);
  const std::string good = index();
  ASSERT_EQ(error(), "no error");
  const auto expect = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    put_index(bytes);
    const std::string message = error();
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto with = [&](size_t offset, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  };
  expect("", {"data.idx", "does not begin with MMIDIDX"});
  expect(with(3, 'x'), {"data.idx", "does not begin with MMIDIDX"});
  expect(good.substr(0, 20), {"cut short", "20 bytes"});
  expect(with(9, uint64_t{2}), {"version 2"});
  expect(with(17, uint8_t{0}), {"unknown type code 0"});
  expect(with(17, uint8_t{9}), {"unknown type code 9"});
  expect(with(17, uint8_t{7}), {"type code 7", "floating point"});
  expect(with(17, uint8_t{8}), {"sequence 1 begins at byte 12", "ends at 6"});
  expect(with(18, uint64_t{3}), {"3 sequences", "3 document indices", "bytes 18 to 33"});
  expect(with(18, ~uint64_t{0}), {"sequences"});
  expect(with(26, uint64_t{0}), {"no document indices"});
  expect(with(26, uint64_t{2}), {"2 document indices"});
  expect(with(26, ~uint64_t{0} / 8), {"document indices"});
  expect(good.substr(0, good.size() - 1), {"cut short"});
  expect(good + "x", {"not a text index"});
  expect(with(34, int32_t{-1}), {"sequence 0 has the length -1"});
  expect(with(34, int32_t{2}), {"sequence 1 begins at byte 12", "ends at 8"});
  expect(with(38, int32_t{3}), {"sequence 1 ends at byte 24", "data.bin has 20 bytes"});
  expect(with(38, int32_t{1}), {"data.bin", "has 20 bytes", "describes 16"});
  expect(with(42, int64_t{4}), {"sequence 0 begins at byte 4"});
  expect(with(50, int64_t{-12}), {"sequence 1 begins at byte -12"});
  expect(with(58, int64_t{1}), {"document index 0 is 1", "expected 0"});
  expect(with(66, int64_t{3}), {"document index 1 is 3", "expected 0 to 2"});
  expect(with(66, int64_t{-1}), {"document index 1 is -1"});
  expect(with(74, int64_t{1}), {"the last document index is 1", "2 sequences"});
  put_index(good);
  ASSERT_EQ(error(), "no error");
  fs::resize_file(folder_ / "data.bin", 19);
  EXPECT_NE(error().find("cut short"), std::string::npos);
  fs::remove(folder_ / "data.bin");
  EXPECT_NE(error().find("data.bin"), std::string::npos);
}

TEST_F(Indexed, UnfinishedFilesLeaveNothing) {
  {
    IndexedDatasetWriter(prefix_, TokenType::int32).add_document(std::vector<int32_t>{1}, "test");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Indexed, FingerprintSeesAnotherPacking) {
  std::vector<std::vector<int32_t>> documents(1000, std::vector<int32_t>(1000, 3));
  write(documents, TokenType::int32);
  const std::string first = IndexedDataset(prefix_).fingerprint();
  EXPECT_EQ(IndexedDataset(prefix_).fingerprint(), first);
  documents.back().back() = 4;
  write(documents, TokenType::int32);
  EXPECT_NE(IndexedDataset(prefix_).fingerprint(), first);
}

TEST(TokenTypes, AreThoseOfMegatron) {
  EXPECT_EQ(token_type_for(65535), TokenType::uint16);
  EXPECT_EQ(token_type_for(65536), TokenType::int32);
}

}  // namespace
}  // namespace sauropod::formats

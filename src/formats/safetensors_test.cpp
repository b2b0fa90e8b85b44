#include "formats/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/random.h"

namespace sauropod::formats {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string message_of(const std::string& bytes) {
  try {
    parse_safetensors(bytes, bytes.size(), "t");
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, WritesWhatItReads) {
  std::vector<SafetensorsEntry> tensors{{.name = "b", .dtype = "F32", .shape = {2, 3}},
                                        {.name = "a", .dtype = "BF16", .shape = {}},
                                        {.name = "e", .dtype = "U8", .shape = {0, 4}}};
  const std::string header = safetensors_header(tensors, {{"key", "value \"quoted\""}});
  EXPECT_EQ(header.size() % 64, 0U);
  const std::string file = header + std::string(26, 'x');
  const SafetensorsHeader read = parse_safetensors(file, file.size(), "t");
  EXPECT_EQ(read.metadata.at("key"), "value \"quoted\"");
  ASSERT_EQ(read.tensors.size(), 3U);
  EXPECT_EQ(read.tensors[0].name, "b");
  EXPECT_EQ(read.tensors[0].begin, header.size());
  EXPECT_EQ(read.tensors[0].end, header.size() + 24);
  EXPECT_EQ(read.tensors[1].name, "a");
  EXPECT_EQ(read.tensors[1].end, header.size() + 26);
  EXPECT_EQ(tensors[1].begin, read.tensors[1].begin);
}

TEST(Safetensors, MapsAFile) {
  std::vector<SafetensorsEntry> tensors{{.name = "t", .dtype = "I16", .shape = {2}}};
  const auto path = std::filesystem::temp_directory_path() /
                    ("sauropod-" + std::to_string(::getpid()) + ".safetensors");
  base::write_file_atomically(path, safetensors_header(tensors) + "abcd");
  const SafetensorsFile file(path);
  const auto data = file.data(file.find("t"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), "abcd");
  EXPECT_THROW(file.find("none"), base::Error);
  std::filesystem::remove(path);
}

TEST(Safetensors, RefusesWhatItsHeaderDoesNotHold) {
  const auto one = [](const std::string& entry, size_t data) {
    return message_of(file_of("{\"t\":" + entry + "}", std::string(data, 'x')));
  };
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", 12), "");
  EXPECT_NE(one(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", 0), "");
  EXPECT_NE(one(R"({"dtype":"F32","data_offsets":[0,8]})", 8), "");
  EXPECT_NE(one("[]", 8), "");
  EXPECT_NE(message_of(""), "");
  EXPECT_NE(message_of(std::string(8, '\xff')), "");
  EXPECT_NE(message_of(file_of("[]", "")), "");
  EXPECT_NE(message_of(file_of("{\"a\"", "")), "");
  EXPECT_EQ(message_of(file_of("{}", "")), "");
}

// Whatever is done to a header, parsing either refuses it or returns ranges inside the file.
TEST(Safetensors, SurvivesAlteredHeaders) {
  std::vector<SafetensorsEntry> tensors{{.name = "a", .dtype = "F32", .shape = {2, 2}},
                                        {.name = "b", .dtype = "F64", .shape = {3}}};
  const std::string file = safetensors_header(tensors, {{"k", "v"}}) + std::string(40, 'x');
  const uint64_t key = base::random_key(1, "safetensors");
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string altered = file;
    for (uint64_t k = 0; k <= i % 3; ++k)
      altered[base::random_bits(key, 8 * i + 2 * k) % altered.size()] =
          static_cast<char>(base::random_bits(key, 8 * i + 2 * k + 1));
    try {
      const SafetensorsHeader read = parse_safetensors(altered, altered.size(), "t");
      for (const SafetensorsEntry& tensor : read.tensors) {
        ASSERT_LE(tensor.begin, tensor.end);
        ASSERT_LE(tensor.end, altered.size());
      }
    } catch (const base::Error&) {
    }
  }
}

}  // namespace
}  // namespace sauropod::formats

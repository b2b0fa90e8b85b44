// The safetensors container: named tensors in one file, as written by the `safetensors` library.
//
// Layout: u64 little-endian n; n bytes of JSON, padded with spaces; the tensors back to back without
// gaps. JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}, offsets
// counted from the end of the JSON; "__metadata__" maps strings to strings. Bytes are little-endian,
// tensors row-major. Reading is defensive: every claim of the header is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace sauropod::formats {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F64", "F32", "F16", "BF16", "I64", …, "U8", "BOOL"
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // byte range in the file
  uint64_t end = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Bytes of one element; 0 for a type that safetensors does not have.
size_t safetensors_element_size(std::string_view dtype);

// Bytes of a tensor. Throws base::Error for a negative dimension, an unknown type or an overflow.
uint64_t safetensors_bytes(std::string_view dtype, std::span<const int64_t> shape);

// The bytes before the tensors (length and JSON, together a multiple of 64) for tensors that follow in
// this order; fills in `begin` and `end` of each. Names must differ.
std::string safetensors_header(std::vector<SafetensorsEntry>& tensors,
                               const SafetensorsMetadata& metadata = {});

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;
};

// Checks and parses the header of a file of `file_size` bytes, of which `start` holds at least the
// header. `name` is what errors call the file.
SafetensorsHeader parse_safetensors(std::string_view start, uint64_t file_size,
                                    const std::string& name);

// A whole file, mapped read-only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  const SafetensorsEntry& find(std::string_view name) const;  // throws when there is none
  std::span<const std::byte> data(const SafetensorsEntry& entry) const;

 private:
  std::string path_;
  base::MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace sauropod::formats

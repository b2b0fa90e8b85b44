// The manifest of a checkpoint: docs/checkpoint-format.md.
//
// Parsing believes nothing: the manifest's own hash, every name, size, range and hash string is
// checked, boxes must tile their tensors exactly, and every byte of a data file after its header must
// belong to exactly one box. A Manifest that was parsed is therefore consistent; whether the files
// agree with it is the Reader's business.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/region.h"

namespace sauropod::checkpoint {

inline constexpr std::string_view manifest_name = "manifest.json";
inline constexpr uint64_t manifest_limit = uint64_t{256} << 20;  // bytes

// A checkpoint that is not what its writer left: a file is missing, short or altered.
class DamageError : public base::Error {
 public:
  using base::Error::Error;
};

struct StoredBox {
  Region region;       // in the full tensor
  size_t file = 0;     // index in Manifest::files
  uint64_t begin = 0;  // byte range in the file
  uint64_t end = 0;
  std::string hash;    // XXH3-128 of the bytes
};

struct StoredTensor {
  std::string parameter, kind, dtype;
  Dimensions shape;
  std::vector<StoredBox> boxes;
};

struct DataFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t header_bytes = 0;  // before the first tensor
  std::string header_hash;
};

// What one rank adds to a checkpoint. StoredBox::file counts within `files`.
struct Part {
  std::vector<DataFile> files;
  std::vector<StoredTensor> tensors;

  // The description, to be sent to the rank that merges the parts. parse() throws base::Error.
  std::string to_bytes() const;
  static Part parse(std::string_view bytes);
};

struct Manifest {
  int64_t step = 0;
  nlohmann::json training;
  nlohmann::json model;
  std::string tokenizer_name;
  uint64_t tokenizer_bytes = 0;
  std::string tokenizer_hash;
  std::vector<DataFile> files;
  std::vector<StoredTensor> tensors;  // in the order in which they were given to the writer

  // Appends a part's files and boxes. Throws base::Error when its tensors have another type or shape
  // than those of parts before it.
  void add(const Part& part);

  // Throws base::Error when the training state or the model can't be written as JSON, and base::Bug
  // when the boxes don't tile.
  std::string to_bytes() const;
  // Throws DamageError; `name` is what messages call the manifest.
  static Manifest parse(std::string_view bytes, const std::string& name);

  // Null when there is none.
  const StoredTensor* find(const std::string& parameter, const std::string& kind) const;
  uint64_t bytes() const;       // of data files and tokenizer
  int64_t parameters() const;  // elements of kind "master"

 private:
  void check() const;  // throws base::Error
  void build_index();

  std::map<std::pair<std::string, std::string>, size_t> index_;
};

}  // namespace sauropod::checkpoint

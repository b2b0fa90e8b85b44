// Megatron's indexed data set: PREFIX.bin holds token ids back to back, PREFIX.idx says where each
// sequence lies and which sequences make a document. The layout is in docs/data.md; Megatron-Core's
// IndexedDataset reads what is written here, and the other way round.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace sauropod::formats {

// The type codes of the index. Codes 6 and 7 (floating point) exist but hold no tokens.
enum class TokenType : uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };

size_t size_of(TokenType type);
std::string_view name_of(TokenType type);
// What a data set for `vocabulary` items is written in: int32 above 65,535, else uint16.
TokenType token_type_for(int64_t vocabulary);

// A data set opened for reading, mapped into memory: opening reads the index once and checks all of
// it, and tokens are fetched from the disk when they are first touched. All const members are
// thread-safe.
class IndexedDataset {
 public:
  // `prefix` may carry the ending .bin or .idx. Throws base::Error that says which of the two files
  // is wrong, in which field or entry, and what was expected.
  explicit IndexedDataset(const std::filesystem::path& prefix);

  const std::filesystem::path& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t sequences() const { return sequences_; }
  uint64_t documents() const { return documents_; }

  // The place of a document's first token in the .bin, counted in tokens; `document` may equal
  // documents(), which gives tokens(). Documents lie back to back, in order.
  uint64_t document_begin(uint64_t document) const;

  // Copies tokens [position, position + out.size()). Throws base::Error for an id that is negative
  // or not below `limit` (the vocabulary; 0: 2^31), naming its place.
  void read(uint64_t position, std::span<int32_t> out, int64_t limit = 0) const;

  // XXH3-128 over the whole .idx, the size of the .bin, and 64 evenly spaced pieces of 4,096 bytes
  // of the .bin: finds another packing without reading a large file; does not prove that no byte
  // changed.
  std::string fingerprint() const;
  // XXH3-128 of the whole .bin.
  std::string data_hash() const { return base::hash128(data_.text()); }

 private:
  uint64_t load_u64(size_t offset) const;
  uint32_t load_u32(size_t offset) const;
  void check_header();
  void check_entries();

  std::filesystem::path prefix_;
  base::MappedFile index_;
  base::MappedFile data_;
  TokenType type_{};
  uint64_t sequences_ = 0;
  uint64_t documents_ = 0;
  uint64_t tokens_ = 0;
};

// Writes a data set of one sequence a document. Memory does not grow with the number of documents.
// Not thread-safe. Without commit() nothing is left behind.
class IndexedDatasetWriter {
 public:
  IndexedDatasetWriter(const std::filesystem::path& prefix, TokenType type);

  // Throws base::Error for a document longer than the 2^31 - 1 tokens that the format can express;
  // `name` says which. Ids must fit the type.
  void add_document(std::span<const int32_t> tokens, std::string_view name);
  // Completes both files and flushes them to the disk; after it commit() does not run out of space.
  void finish();
  // Gives both files their names. finish() must have been called.
  void commit();

  uint64_t documents() const { return documents_; }
  uint64_t tokens() const { return tokens_; }
  // XXH3-128 of the .bin; after finish().
  const std::string& data_hash() const { return data_hash_; }

 private:
  void flush_data();
  void flush_lengths();

  base::AtomicFile data_;
  base::AtomicFile index_;
  TokenType type_;
  base::Hasher hasher_;
  std::string data_hash_;
  std::vector<char> data_buffer_;
  std::vector<int32_t> lengths_;
  uint64_t documents_ = 0;
  uint64_t tokens_ = 0;
  uint64_t lengths_written_ = 0;
  bool finished_ = false;
};

}  // namespace sauropod::formats

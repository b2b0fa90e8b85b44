#include "formats/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace sauropod::formats {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr uint64_t kVersion = 1;
constexpr size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;
constexpr size_t kHeader = 34;
constexpr size_t kBlock = size_t{1} << 17;  // entries or tokens written at once

fs::path with_ending(const fs::path& prefix, const char* ending) {
  fs::path path = prefix;
  path += ending;
  return path;
}

fs::path without_ending(const fs::path& path) {
  if (path.extension() == ".bin" || path.extension() == ".idx") {
    fs::path prefix = path;
    return prefix.replace_extension();
  }
  return path;
}

template <typename T>
void copy_tokens(const std::byte* from, std::span<int32_t> out, int64_t limit, uint64_t position,
                 const fs::path& prefix) {
  int64_t lowest = 0, highest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    lowest = std::min<int64_t>(lowest, value);
    highest = std::max<int64_t>(highest, value);
    out[i] = static_cast<int32_t>(value);
  }
  if (lowest >= 0 && highest < limit) return;
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    if (const auto id = static_cast<int64_t>(value); id < 0 || id >= limit)
      base::fail(
          "{}.bin: token {} is {}, outside the vocabulary of {} items; was it packed with another "
          "tokenizer?",
          prefix.string(), position + i, id, limit);
  }
}

template <typename T>
void append_tokens(std::vector<char>& buffer, std::span<const int32_t> tokens) {
  const size_t begin = buffer.size();
  buffer.resize(begin + tokens.size() * sizeof(T));
  char* to = buffer.data() + begin;
  for (const int32_t token : tokens) {
    const T value = static_cast<T>(token);
    SAUROPOD_CHECK(static_cast<int64_t>(value) == token, "id {} does not fit", token);
    std::memcpy(to, &value, sizeof(T));
    to += sizeof(T);
  }
}

}  // namespace

size_t size_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  SAUROPOD_CHECK(false, "type {}", static_cast<int>(type));
  return 0;
}

std::string_view name_of(TokenType type) {
  constexpr std::array<std::string_view, 9> kNames = {"",      "uint8", "int8", "int16", "int32",
                                                      "int64", "",      "",     "uint16"};
  return kNames.at(static_cast<size_t>(type));
}

TokenType token_type_for(int64_t vocabulary) {
  return vocabulary > 65535 ? TokenType::int32 : TokenType::uint16;
}

IndexedDataset::IndexedDataset(const fs::path& prefix)
    : prefix_(without_ending(prefix)),
      index_(with_ending(prefix_, ".idx")),
      data_(with_ending(prefix_, ".bin")) {
  check_header();
  check_entries();
}

uint64_t IndexedDataset::load_u64(size_t offset) const {
  uint64_t value;
  std::memcpy(&value, index_.bytes().data() + offset, sizeof(value));
  return value;
}

uint32_t IndexedDataset::load_u32(size_t offset) const {
  uint32_t value;
  std::memcpy(&value, index_.bytes().data() + offset, sizeof(value));
  return value;
}

void IndexedDataset::check_header() {
  const std::string name = prefix_.string() + ".idx";
  const auto bytes = index_.bytes();
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    base::fail("{}: not a Megatron index: it does not begin with MMIDIDX", name);
  if (bytes.size() < kHeader)
    base::fail("{}: cut short: {} bytes, and the header alone has {}", name, bytes.size(), kHeader);
  if (load_u64(kVersionAt) != kVersion)
    base::fail("{}: version {} of the format (bytes 9 to 16); only version {} is known", name,
               load_u64(kVersionAt), kVersion);
  const auto code = std::to_integer<int>(bytes[kTypeAt]);
  if (code == 6 || code == 7)
    base::fail("{}: type code {} (byte 17) is floating point: these are not token ids", name, code);
  if (code < 1 || code > 8)
    base::fail("{}: unknown type code {} (byte 17); 1 to 5 and 8 are known", name, code);
  type_ = static_cast<TokenType>(code);

  sequences_ = load_u64(kSequencesAt);
  const uint64_t indices = load_u64(kDocumentsAt);
  if (indices == 0)
    base::fail("{}: no document indices (bytes 26 to 33); there is one more than documents", name);
  documents_ = indices - 1;
  // No count can exceed the file, so the sum below does not overflow.
  const uint64_t room = bytes.size() - kHeader;
  if (sequences_ > room / 12 || indices > room / 8 || sequences_ * 12 + indices * 8 != room)
    base::fail(
        "{}: has {} bytes, but {} sequences and {} document indices (bytes 18 to 33) need {:.0f}; "
        "the file is cut short or not a text index",
        name, bytes.size(), sequences_, indices,
        static_cast<double>(kHeader) + 12.0 * static_cast<double>(sequences_) +
            8.0 * static_cast<double>(indices));
}

void IndexedDataset::check_entries() {
  const std::string name = prefix_.string() + ".idx";
  const uint64_t item = size_of(type_);
  const size_t offsets_at = kHeader + sequences_ * 4;
  const size_t documents_at = offsets_at + sequences_ * 8;
  uint64_t expected = 0;  // stays near `available`, so the sum does not overflow
  const uint64_t available = data_.bytes().size();
  for (uint64_t i = 0; i < sequences_; ++i) {
    const auto length = static_cast<int32_t>(load_u32(kHeader + i * 4));
    if (length < 0) base::fail("{}: sequence {} has the length {}", name, i, length);
    const uint64_t offset = load_u64(offsets_at + i * 8);
    if (offset != expected)
      base::fail("{}: sequence {} begins at byte {} and the one before it ends at {}", name, i,
                 static_cast<int64_t>(offset), expected);
    expected += static_cast<uint64_t>(length) * item;
    if (expected > available)
      base::fail("{}: sequence {} ends at byte {}, but {}.bin has {} bytes: it is cut short", name,
                 i, expected, prefix_.string(), available);
  }
  if (expected != available)
    base::fail("{}.bin: has {} bytes, but its index describes {}: the two do not belong together",
               prefix_.string(), available, expected);
  tokens_ = expected / item;
  uint64_t before = 0;
  for (uint64_t d = 0; d <= documents_; ++d) {
    const uint64_t first = load_u64(documents_at + d * 8);
    if (d == 0 ? first != 0 : first < before || first > sequences_)
      base::fail("{}: document index {} is {}; expected {}", name, d, static_cast<int64_t>(first),
                 d == 0 ? std::string("0") : fmt::format("{} to {}", before, sequences_));
    before = first;
  }
  if (before != sequences_)
    base::fail("{}: the last document index is {}, but there are {} sequences", name, before,
               sequences_);
}

uint64_t IndexedDataset::document_begin(uint64_t document) const {
  SAUROPOD_CHECK(document <= documents_);
  const size_t offsets_at = kHeader + sequences_ * 4;
  const uint64_t sequence = load_u64(offsets_at + sequences_ * 8 + document * 8);
  if (sequence == sequences_) return tokens_;
  return load_u64(offsets_at + sequence * 8) / size_of(type_);
}

void IndexedDataset::read(uint64_t position, std::span<int32_t> out, int64_t limit) const {
  SAUROPOD_CHECK(position <= tokens_ && out.size() <= tokens_ - position);
  if (limit == 0) limit = int64_t{1} << 31;
  const std::byte* from = data_.bytes().data() + position * size_of(type_);
  switch (type_) {
    case TokenType::uint8:
      return copy_tokens<uint8_t>(from, out, limit, position, prefix_);
    case TokenType::int8:
      return copy_tokens<int8_t>(from, out, limit, position, prefix_);
    case TokenType::int16:
      return copy_tokens<int16_t>(from, out, limit, position, prefix_);
    case TokenType::uint16:
      return copy_tokens<uint16_t>(from, out, limit, position, prefix_);
    case TokenType::int32:
      return copy_tokens<int32_t>(from, out, limit, position, prefix_);
    case TokenType::int64:
      return copy_tokens<int64_t>(from, out, limit, position, prefix_);
  }
}

std::string IndexedDataset::fingerprint() const {
  constexpr uint64_t kPieces = 64, kPiece = 4096;
  base::Hasher hasher;
  const auto index = index_.bytes(), data = data_.bytes();
  hasher.update(index.data(), index.size());
  const uint64_t size = data.size();
  hasher.update(&size, sizeof(size));
  if (size <= kPieces * kPiece) {
    hasher.update(data.data(), size);
  } else {
    for (uint64_t i = 0; i < kPieces; ++i) {
      // (size - kPiece) i / 63, in parts that do not overflow.
      const uint64_t span = size - kPiece;
      const uint64_t at = span / (kPieces - 1) * i + span % (kPieces - 1) * i / (kPieces - 1);
      hasher.update(data.data() + at, kPiece);
    }
  }
  return hasher.digest();
}

IndexedDatasetWriter::IndexedDatasetWriter(const fs::path& prefix, TokenType type)
    : data_(with_ending(prefix, ".bin")), index_(with_ending(prefix, ".idx")), type_(type) {}

void IndexedDatasetWriter::add_document(std::span<const int32_t> tokens, std::string_view name) {
  SAUROPOD_CHECK(!finished_);
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    base::fail_usage("{}: the document has {} tokens; the format allows 2,147,483,647: cut it up",
                     name, tokens.size());
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  if (lengths_.size() == kBlock) flush_lengths();
  ++documents_;
  tokens_ += tokens.size();
  while (!tokens.empty()) {
    const auto piece = tokens.first(std::min(tokens.size(), kBlock));
    switch (type_) {
      case TokenType::uint16:
        append_tokens<uint16_t>(data_buffer_, piece);
        break;
      case TokenType::int32:
        append_tokens<int32_t>(data_buffer_, piece);
        break;
      default:
        SAUROPOD_CHECK(false, "only uint16 and int32 are written");
    }
    if (data_buffer_.size() >= kBlock * 4) flush_data();
    tokens = tokens.subspan(piece.size());
  }
}

void IndexedDatasetWriter::flush_data() {
  hasher_.update(data_buffer_.data(), data_buffer_.size());
  data_.write(data_buffer_.data(), data_buffer_.size());
  data_buffer_.clear();
}

void IndexedDatasetWriter::flush_lengths() {
  index_.write_at(kHeader + lengths_written_ * 4, lengths_.data(), lengths_.size() * 4);
  lengths_written_ += lengths_.size();
  lengths_.clear();
}

void IndexedDatasetWriter::finish() {
  SAUROPOD_CHECK(!finished_);
  flush_data();
  flush_lengths();
  std::array<char, kHeader> header{};
  const uint64_t indices = documents_ + 1;
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  std::memcpy(header.data() + kVersionAt, &kVersion, 8);
  header[kTypeAt] = static_cast<char>(type_);
  std::memcpy(header.data() + kSequencesAt, &documents_, 8);
  std::memcpy(header.data() + kDocumentsAt, &indices, 8);
  index_.write_at(0, header.data(), header.size());

  // The offsets follow from the lengths, which are read back a block at a time.
  const size_t offsets_at = kHeader + documents_ * 4;
  const size_t documents_at = offsets_at + documents_ * 8;
  std::vector<int64_t> block;
  int64_t offset = 0;
  for (uint64_t begin = 0; begin < documents_; begin += kBlock) {
    const size_t count = std::min<uint64_t>(kBlock, documents_ - begin);
    lengths_.resize(count);
    index_.read_at(kHeader + begin * 4, lengths_.data(), count * 4);
    block.clear();
    for (const int32_t length : lengths_) {
      block.push_back(offset);
      offset += static_cast<int64_t>(length) * static_cast<int64_t>(size_of(type_));
    }
    index_.write_at(offsets_at + begin * 8, block.data(), count * 8);
  }
  for (uint64_t begin = 0; begin < indices; begin += kBlock) {
    block.clear();
    for (uint64_t i = begin; i < std::min(begin + kBlock, indices); ++i)
      block.push_back(static_cast<int64_t>(i));
    index_.write_at(documents_at + begin * 8, block.data(), block.size() * 8);
  }
  lengths_.clear();
  data_.flush();
  index_.flush();
  data_hash_ = hasher_.digest();
  finished_ = true;
}

void IndexedDatasetWriter::commit() {
  SAUROPOD_CHECK(finished_);
  data_.commit();
  index_.commit();
}

}  // namespace sauropod::formats

// Files: whole reads, atomic writes, memory maps. Every failure is a base::Error that names the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sauropod::base {

std::string read_file(const std::filesystem::path& path);

// Creates the folder and its parents; an error names the folder that could not be made.
void make_folders(const std::filesystem::path& path);

// Writes a file that other processes see whole or not at all: the bytes go to a temporary file in the
// same folder, are flushed to the disk, and take the name by rename; the folder is flushed too.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// The same for content written piece by piece. Without commit() the destructor removes the temporary
// file, so an exception or a full disk leaves nothing behind, and so does Ctrl-C (interrupt.h). Not
// thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Writes at an offset without moving the position of write(); thread-safe for disjoint ranges.
  void write_at(size_t offset, const void* data, size_t size);
  // Reads back `size` bytes written before; thread-safe.
  void read_at(size_t offset, void* data, size_t size) const;
  // Flushes to the disk, so that commit() can no longer fail for want of space: for several files that
  // take their names together.
  void flush();
  void commit();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int remembered_ = -1;
  size_t position_ = 0;
};

// Flushes a folder's entries to the disk, so that a rename or removal in it survives a power cut.
void sync_folder(const std::filesystem::path& folder);

// A file mapped read-only. Movable; the bytes stay valid for the object's life. The mapping is of the
// file as it was opened: replacing it by rename does not disturb readers.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sauropod::base

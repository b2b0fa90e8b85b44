#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace sauropod::base {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

void write_all(int descriptor, const fs::path& path, const char* data, size_t size,
               size_t offset) {
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor, data, size, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_errno("cannot write", path, errno);
    }
    data += written;
    size -= static_cast<size_t>(written);
    offset += static_cast<size_t>(written);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_errno("cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("cannot read", path, errno);
  if (S_ISDIR(status.st_mode)) fail("cannot read {}: it is a folder", path.string());
  std::string content;
  // The size is a hint only: pipes and /proc report 0.
  content.resize(static_cast<size_t>(status.st_size) + 1);
  size_t filled = 0;
  while (true) {
    if (filled == content.size()) content.resize(content.size() * 2);
    const ssize_t got = ::read(file.get(), content.data() + filled, content.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_errno("cannot read", path, errno);
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  content.resize(filled);
  return content;
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_errno("cannot create the folder", path, error.value());
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  temporary_ = path_;
  temporary_ += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
  remembered_ = remember_temporary(temporary_.string());
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    const int error_number = errno;
    forget_temporary(remembered_);
    fail_errno("cannot write", path_, error_number);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  forget_temporary(remembered_);
}

void AtomicFile::write(const void* data, size_t size) {
  write_all(descriptor_, path_, static_cast<const char*>(data), size, position_);
  position_ += size;
}

void AtomicFile::write_at(size_t offset, const void* data, size_t size) {
  write_all(descriptor_, path_, static_cast<const char*>(data), size, offset);
}

void AtomicFile::read_at(size_t offset, void* data, size_t size) const {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, to, size, static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_errno("cannot read", path_, errno);
    }
    SAUROPOD_CHECK(got > 0, "read past the end of {}", path_.string());
    to += got;
    size -= static_cast<size_t>(got);
    offset += static_cast<size_t>(got);
  }
}

void AtomicFile::flush() {
  if (::fsync(descriptor_) != 0) fail_errno("cannot write", path_, errno);
}

void AtomicFile::commit() {
  SAUROPOD_CHECK(descriptor_ >= 0, "committed twice");
  flush();
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_.c_str());
    forget_temporary(remembered_);
    fail_errno("cannot write", path_, error_number);
  }
  forget_temporary(remembered_);
  sync_folder(folder_of(path_));
}

void sync_folder(const fs::path& folder) {
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) fail_errno("cannot open the folder", folder, errno);
  // Some network file systems refuse to flush folders; there is nothing more to do there.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail_errno("cannot flush", folder, errno);
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_errno("cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("cannot read", path, errno);
  if (!S_ISREG(status.st_mode)) fail("cannot map {}: it is not a regular file", path.string());
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_errno("cannot map", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace sauropod::base

#include "formats/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace sauropod::formats {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : path_(path) {
    if (path == "-") {
      path_ = "standard input";
      descriptor_ = STDIN_FILENO;
      return;
    }
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) base::fail_errno("cannot open", path_, errno);
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~FileSource() override {
    if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  size_t read(char* data, size_t size) override {
    while (true) {
      const ssize_t got = ::read(descriptor_, data, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) base::fail_errno("cannot read", path_, errno);
    }
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

[[noreturn]] void fail_damaged(const std::string& path, const char* format, const char* reason) {
  base::fail("cannot unpack {}: the {} data is damaged ({}); fetch or make the file again", path,
             format, reason);
}

[[noreturn]] void fail_truncated(const std::string& path, const char* format) {
  base::fail("cannot unpack {}: the {} data is cut short; fetch or make the file again", path,
             format);
}

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const std::string& path) : file_(path), input_(kChunk) {
    constexpr int kGzipOnly = 15 + 16;  // zlib: the largest window, a gzip header
    SAUROPOD_CHECK(::inflateInit2(&stream_, kGzipOnly) == Z_OK);
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(char* data, size_t size) override {
    const size_t wanted = std::min(size, kChunk);
    stream_.next_out = reinterpret_cast<Bytef*>(data);
    stream_.avail_out = static_cast<uInt>(wanted);
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0 && !refill()) {
        if (inside_ || members_ == 0) fail_truncated(file_.path(), "gzip");
        return 0;
      }
      if (!inside_) {
        // The next member; zeros after the last one are padding.
        while (members_ > 0 && stream_.avail_in > 0 && *stream_.next_in == 0) {
          ++stream_.next_in;
          --stream_.avail_in;
        }
        if (stream_.avail_in == 0) continue;
        SAUROPOD_CHECK(::inflateReset(&stream_) == Z_OK);
        inside_ = true;
      }
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_ = false;
        ++members_;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail_damaged(file_.path(), "gzip", stream_.msg != nullptr ? stream_.msg : "zlib error");
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  bool refill() {
    const size_t got = file_.read(input_.data(), input_.size());
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  FileSource file_;
  std::vector<char> input_;
  z_stream stream_{};
  bool inside_ = false;
  uint64_t members_ = 0;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const std::string& path)
      : file_(path), buffer_(kChunk), stream_(::ZSTD_createDStream()) {
    SAUROPOD_CHECK(stream_ != nullptr);
    // Archives made with `zstd --long=31` need a window of 2 GiB; others take what they need.
    SAUROPOD_CHECK(!::ZSTD_isError(::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 31)));
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  size_t read(char* data, size_t size) override {
    ZSTD_outBuffer output{data, size, 0};
    while (output.pos == 0) {
      // Output that did not fit last time comes before more input.
      if (input_.pos == input_.size && !flushing_) {
        input_ = {buffer_.data(), file_.read(buffer_.data(), buffer_.size()), 0};
        if (input_.size == 0) {
          if (inside_) fail_truncated(file_.path(), "zstd");
          return 0;
        }
      }
      const size_t result = ::ZSTD_decompressStream(stream_, &output, &input_);
      if (::ZSTD_isError(result)) fail_damaged(file_.path(), "zstd", ::ZSTD_getErrorName(result));
      inside_ = result != 0;
      flushing_ = inside_ && output.pos == output.size;
    }
    return output.pos;
  }

 private:
  FileSource file_;
  std::vector<char> buffer_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_ = true;  // an empty file holds no frame: it is cut short too
  bool flushing_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_source(const std::string& path, Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return std::make_unique<GzipSource>(path);
    case Compression::zstd:
      return std::make_unique<ZstdSource>(path);
    case Compression::none:
      break;
  }
  return std::make_unique<FileSource>(path);
}

}  // namespace sauropod::formats

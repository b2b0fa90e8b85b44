// A stream of bytes out of a file: as it lies there, or unpacked from gzip (RFC 1952) or zstd (RFC
// 8878) on the way. Memory is bounded by the compressor's window, whatever the size of the file.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace sauropod::formats {

enum class Compression { none, gzip, zstd };

// Reads forward only. Not thread-safe. Every failure is a base::Error that names the path; a stream
// that ends inside a gzip member or a zstd frame is one, so a truncated file is never taken for a
// short one. Several members or frames back to back are read as one stream, as gzip and zstd do.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` (> 0) bytes; 0 only at the end.
  virtual size_t read(char* data, size_t size) = 0;
};

// "-" is standard input. Pipes and devices can be read like files.
std::unique_ptr<ByteSource> open_source(const std::string& path, Compression compression);

}  // namespace sauropod::formats

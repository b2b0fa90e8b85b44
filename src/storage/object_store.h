// Objects under keys: what checkpoints are written to and read from.
//
// The interface asks only for what a local folder and S3 can both do: an object appears whole or not
// at all, replaces an older one in one step, is never appended to and never renamed. Keys are relative
// paths with '/' between their parts, e.g. "step-000001000/manifest.json".
//
// Threads: all functions may be called from any thread. One object is written by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sauropod::storage {

enum class Cause {
  missing,      // there is no such object, or it ends before the range asked for
  no_space,     // disk or quota full
  read_only,    // read-only file system, or no permission
  damaged,      // the medium can't give the bytes back
  unavailable,  // anything else; trying again may help
};

// A failed operation on a store. The message names the object as its owner would look for it.
class StoreError : public base::Error {
 public:
  StoreError(Cause cause, const std::string& message) : base::Error(message), cause_(cause) {}
  Cause cause() const { return cause_; }

 private:
  Cause cause_;
};

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;  // bytes
};

// An object being written. It becomes visible, and durable, by commit(); an upload destroyed without
// it leaves nothing behind.
class Upload {
 public:
  virtual ~Upload() = default;
  // Appends. The bytes may be reused when it returns.
  virtual void write(const void* data, size_t size) = 0;
  virtual void commit() = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Begins an object; `size` is how many bytes will be written (a store may size its parts by it).
  virtual std::unique_ptr<Upload> create(const std::string& key, uint64_t size) = 0;
  // Reads `size` bytes from `offset`: all of them, or throws.
  virtual void read(const std::string& key, uint64_t offset, size_t size, void* out) const = 0;
  // Every object whose key begins with `prefix`, by key. Unfinished uploads are not listed.
  virtual std::vector<ObjectInfo> list(const std::string& prefix) const = 0;
  virtual std::optional<uint64_t> size(const std::string& key) const = 0;
  // Removes an object, durably; one that does not exist is no error.
  virtual void remove(const std::string& key) = 0;
  // Removes what writers that died left of unfinished uploads under `prefix`. Only for the one who
  // writes there: uploads of others that are still alive would be lost.
  virtual void remove_unfinished(const std::string& prefix) = 0;
  // What messages call the object: a path, an s3:// address. "" names the store itself.
  virtual std::string describe(const std::string& key) const = 0;

  void put(const std::string& key, std::string_view bytes);
  // The whole object. Throws when it is larger than `limit`.
  std::string get(const std::string& key, uint64_t limit) const;
};

// Refuses keys that would leave the store or that not every store can hold: empty parts, "." and
// "..", control characters, a leading or trailing '/'.
void check_key(std::string_view key);

}  // namespace sauropod::storage

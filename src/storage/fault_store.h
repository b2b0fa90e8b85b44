// An ObjectStore that passes everything to another one and goes wrong on request, for tests of what
// stands on stores.
//
// Operations are counted from 1 in the order in which they begin: create, write, commit, read, list,
// size, remove. A rule names an operation (or any), the n-th of which it strikes, and what happens:
// an error of a given cause, before anything or after half of the bytes; a delay; the end of the
// process by SIGKILL; or silence, when a commit leaves an object that ends half-way or a read returns
// one flipped byte, as hardware does that loses data without saying so.
#pragma once

#include <chrono>
#include <mutex>

#include "storage/object_store.h"

namespace sauropod::storage {

enum class Operation { any, create, write, commit, read, list, size, remove };

struct Fault {
  enum class Effect {
    error,        // nothing happens and `cause` is reported
    short_write,  // half of the bytes are written, then `cause` is reported
    delay,        // happens after `delay`
    kill,         // SIGKILL to this process
    truncate,     // commit: the object is left with half of its bytes, no error
    flip_byte,    // read: the middle byte comes back altered, no error
  };
  Operation operation = Operation::any;
  uint64_t nth = 1;        // among operations of this kind, from 1
  bool repeat = false;     // the nth and all after it
  Effect effect = Effect::error;
  Cause cause = Cause::unavailable;
  std::chrono::milliseconds delay{0};
};

class FaultStore : public ObjectStore {
 public:
  explicit FaultStore(ObjectStore& store) : store_(store) {}

  void add(const Fault& fault);
  void clear();                                // no rules; counts start again from 1
  uint64_t count(Operation operation) const;  // how many have begun

  std::unique_ptr<Upload> create(const std::string& key, uint64_t size) override;
  void read(const std::string& key, uint64_t offset, size_t size, void* out) const override;
  std::vector<ObjectInfo> list(const std::string& prefix) const override;
  std::optional<uint64_t> size(const std::string& key) const override;
  void remove(const std::string& key) override;
  void remove_unfinished(const std::string& prefix) override;
  std::string describe(const std::string& key) const override;

 private:
  friend class FaultUpload;
  // Counts one operation, does what strikes it, and returns the silent effect that is left to do.
  std::optional<Fault> begin(Operation operation, const std::string& key) const;

  ObjectStore& store_;
  mutable std::mutex mutex_;
  std::vector<Fault> faults_;
  mutable std::vector<uint64_t> counts_ = std::vector<uint64_t>(8);
};

}  // namespace sauropod::storage

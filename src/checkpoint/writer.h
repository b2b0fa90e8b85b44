// Writing checkpoints: docs/checkpoint-format.md.
//
// A write puts the data files, then the tokenizer, then the manifest, each durably before the next, so
// a process killed or a power cut at any moment leaves either the whole new checkpoint or what was
// there before. Only then are old ones removed, the manifest first. A step that is written again (a
// run that fell back and came to the same step) is replaced by the new manifest in one operation. A
// write that fails removes its own files. What killed writers left is removed by the next write: one
// store has one Writer at a time.
//
// Threads: a Writer is used from one thread; it makes its own for writing.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/manifest.h"
#include "checkpoint/snapshot.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

struct Retention {
  int64_t keep_last = 3;   // that many of the newest intact ones; 0: all
  int64_t keep_every = 0;  // those of steps that are multiples of it, for ever; 0: none
};

struct WriterOptions {
  int threads = 2;                              // that hash and write at the same time
  uint64_t box_bytes = uint64_t{64} << 20;      // larger boxes are cut
  uint64_t file_bytes = uint64_t{512} << 20;    // about how large data files become
};

class Writer {
 public:
  // The store must outlive the Writer.
  explicit Writer(storage::ObjectStore& store, Retention retention = {},
                  WriterOptions options = {});
  // Waits for a write in progress; an error that nobody has asked for with wait() goes to the log.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // All three first wait for a write in progress and throw its error, if it had one; write() and
  // write_in_background() then don't write.
  void write(const Snapshot& snapshot);
  // Returns at once. The snapshot, and with it its owner, is let go when it is written.
  void write_in_background(Snapshot snapshot);
  void wait();

 private:
  struct Plan;
  void write_now(const Snapshot& snapshot);
  void write_files(const Snapshot& snapshot, Plan& plan);
  void write_data_file(Plan& plan, size_t file);
  void undo(const Plan& plan) noexcept;
  void remove_leftovers();
  void remove_checkpoint(const Listed& listed);
  void remove_replaced(const Plan& plan);
  void retain(int64_t newest);
  bool is_intact(const Listed& listed);

  storage::ObjectStore& store_;
  const Retention retention_;
  const WriterOptions options_;
  std::thread thread_;
  std::exception_ptr error_;
  // Steps whose every byte this Writer has written or read, and whether they are intact.
  std::map<int64_t, bool> intact_;
};

}  // namespace sauropod::checkpoint

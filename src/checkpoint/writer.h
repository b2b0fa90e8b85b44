// Writing checkpoints, by one process or by many ranks together: docs/checkpoint-format.md.
//
// Each rank writes its data files in a thread of its own while training goes on. When all have, rank 0
// merges what they wrote, checks that it tiles every tensor, and puts the manifest, so a process killed
// or a power cut at any moment leaves either the whole new checkpoint or what was there before. Only
// then are old ones removed, the manifest first. A step that is written again (a run that fell back and
// came to the same step) is replaced by the new manifest in one operation. When a rank fails, all
// learn which and why, each removes its own files, and the next write may be tried. What killed
// writers left is removed by the next write: one store has one Writer a rank at a time.
//
// Threads: a Writer is used from one thread, the one that issues the other collectives of its peers;
// those threads it makes only touch the store. Which ranks are done is asked by poll() and wait().
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/part.h"
#include "checkpoint/peers.h"
#include "checkpoint/retention.h"
#include "checkpoint/snapshot.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

class Writer {
 public:
  // The store, which is the same for all ranks, and the peers must outlive the Writer. Without peers
  // the process is alone.
  explicit Writer(storage::ObjectStore& store, Retention retention = {},
                  WriterOptions options = {}, Peers* peers = nullptr);
  // Ends what is in progress without asking others: see give_up(). A process that is alone waits for
  // it instead; an error then goes to the log.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // All of these are collective. An error of any rank is thrown on every rank: by the one that failed
  // as it was, by the others as a base::Error that names it. Afterwards nothing is in progress and
  // the next checkpoint can be written. An error of the peers themselves leaves the Writer as it is.

  // Goes on with what is in progress, if anything, without waiting for any disk; whether all is done.
  bool poll();
  // Waits until nothing is in progress.
  void wait();
  // Both first wait() and, if that throws, don't write. All ranks give the same step. The second
  // returns while the files are being written; the snapshot, and with it its owner, is let go when
  // they are. The checkpoint exists once poll() has returned true, or wait() has returned.
  void write(const Snapshot& snapshot);
  void write_in_background(Snapshot snapshot);

 private:
  struct Attempt;
  void begin(const Snapshot& snapshot);
  void start(std::function<void()> work);
  void write_own(const Snapshot& snapshot);
  void write_tokenizer(const std::string& bytes);
  void advance();
  void ask_who_is_written();
  void ask_whether_committed();
  void commit(const std::vector<std::string>& parts);
  void check_files(const std::vector<Part>& parts);
  bool may_be_committed(const std::string& manifest) const noexcept;
  [[noreturn]] void fail(const std::exception_ptr& own, const std::string& text, bool remove);
  void remove_own() noexcept;
  void give_up();
  void join();

  storage::ObjectStore& store_;
  const WriterOptions options_;
  Alone alone_;
  Peers& peers_;
  Keeper keeper_;  // used on rank 0
  std::unique_ptr<Attempt> attempt_;  // what is in progress
  std::thread thread_;
};

}  // namespace sauropod::checkpoint

// One rank's part of a checkpoint: its boxes are cut, divided among data files, hashed and written.
// Names and rules are in docs/checkpoint-format.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/snapshot.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

struct WriterOptions {
  int threads = 2;                              // that hash and write at the same time
  uint64_t box_bytes = uint64_t{64} << 20;      // larger boxes are cut
  uint64_t file_bytes = uint64_t{512} << 20;    // about how large data files become
};

// Who writes, and where: the files are called prefix + data_file_name(attempt, rank, 0, 1, 2, …).
struct PartPlace {
  std::string prefix;
  std::string attempt;
  int rank = 0;
};

// Writes the boxes of a snapshot, each file durably, and returns their description. When `cancelled`
// becomes true while it writes, it ends soon, with an error. An error leaves files behind.
Part write_part(storage::ObjectStore& store, const PartPlace& place, const Snapshot& snapshot,
                const WriterOptions& options, const std::atomic<bool>& cancelled);

// Removes whatever write_part() has left at this place.
void remove_part(storage::ObjectStore& store, const PartPlace& place);

}  // namespace sauropod::checkpoint

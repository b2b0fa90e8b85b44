// What is removed from a store of checkpoints, and when: docs/checkpoint-format.md. One process does it
// for all ranks.
#pragma once

#include <cstdint>
#include <map>

#include "checkpoint/catalog.h"
#include "checkpoint/manifest.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

struct Retention {
  int64_t keep_last = 3;   // that many of the newest intact ones; 0: all
  int64_t keep_every = 0;  // those of steps that are multiples of it, for ever; 0: none
};

// Not thread-safe. The store must outlive it.
class Keeper {
 public:
  Keeper(storage::ObjectStore& store, Retention retention)
      : store_(store), retention_(retention) {}

  // What writers that died have left: prefixes without a manifest, data files that the manifest beside
  // them does not list, unfinished uploads. Only while no rank writes.
  void remove_leftovers();

  // To be told of every checkpoint that was just written. Removes the data files that lay under its
  // prefix before, and the checkpoints that need no longer be kept.
  void written(const Manifest& manifest, const Listed& before);

 private:
  void remove_checkpoint(const Listed& listed);
  void remove_unlisted(const Listed& listed, const Manifest& manifest);
  void retain(int64_t newest);
  bool is_intact(const Listed& listed);

  storage::ObjectStore& store_;
  const Retention retention_;
  // Steps whose every byte was written by this process and its peers, or read, and whether they are
  // intact.
  std::map<int64_t, bool> intact_;
};

}  // namespace sauropod::checkpoint

// Which checkpoints a store holds: key prefixes "step-000001000/" with a manifest.json under them. A
// prefix without a manifest is what a writer that died has left, and no checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

std::string prefix_of_step(int64_t step);  // "step-000001000/"

struct Listed {
  std::string prefix;                        // keys of the checkpoint's files begin with it
  int64_t step = 0;                          // by the prefix
  std::map<std::string, uint64_t> files;     // name (without prefix) -> bytes
  bool committed() const { return files.contains(std::string(manifest_name)); }
};

// Everything under prefixes of steps, committed or not, by step.
std::vector<Listed> list_steps(const storage::ObjectStore& store);

// The files under one prefix, which may be "" when the store itself is one checkpoint.
Listed list_one(const storage::ObjectStore& store, const std::string& prefix);

// Reads the manifest and compares the names and sizes of the files with it. Throws DamageError that
// names what is wrong, or storage::StoreError when the store can't be read at all.
Manifest load_manifest(const storage::ObjectStore& store, const Listed& listed);

}  // namespace sauropod::checkpoint

// Which checkpoints a store holds: key prefixes "step-000001000/" with a manifest.json under them. A
// prefix without a manifest is what a writer that died has left, or is being written, and no checkpoint.
// And what data files are called.
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

// "data-5f3a9c1e-r00003-0000.safetensors": the number-th file that a rank writes in an attempt.
std::string data_file_name(const std::string& attempt, int rank, size_t number);
// What the names of a rank's files in an attempt begin with, and no others.
std::string data_file_begin(const std::string& attempt, int rank);
bool is_data_file(std::string_view name);
// "5f3a9c1e"; "" when the name has none.
std::string attempt_of(std::string_view name);

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

// The bytes of the manifest. Throws DamageError when it is missing, or storage::StoreError when the store
// can't be read at all.
std::string read_manifest(const storage::ObjectStore& store, const Listed& listed);

// The manifest in those bytes, once its step and the names and sizes of its files have been found to
// be those that are there. Throws DamageError that names what is wrong.
Manifest check_manifest(const storage::ObjectStore& store, const Listed& listed,
                        const std::string& bytes);

// Both at once.
Manifest load_manifest(const storage::ObjectStore& store, const Listed& listed);

}  // namespace sauropod::checkpoint

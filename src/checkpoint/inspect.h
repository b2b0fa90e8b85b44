// What a person can ask about checkpoints without reading their tensors: which there are at a path,
// whether they are intact, what is in one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/reader.h"

namespace sauropod::checkpoint {

// The checkpoints a path stands for: the folder of one, a folder of several, or the output folder of
// a run with "checkpoints" in it. Throws base::Error (usage) when it is no folder.
struct Place {
  std::shared_ptr<const storage::ObjectStore> store;
  std::vector<Listed> checkpoints;  // committed ones, by step
  std::vector<Listed> unfinished;   // prefixes without a manifest, by step
  bool single = false;              // the path is one checkpoint
};
Place locate(const std::string& path);

struct Summary {
  std::string path;
  int64_t step = 0;
  // Empty when it is intact as far as was looked.
  std::vector<std::string> damages;
  std::optional<Manifest> manifest;  // none when it can't be used

  bool intact() const { return damages.empty(); }
  // {"step", "path", "intact", "bytes", "parameters", "tokens", "damages"}; what is not known is null.
  nlohmann::json to_json() const;
};

// Looks at the manifest and the sizes of the files; with `hashes` reads every byte.
Summary summarize(const Place& place, const Listed& listed, bool hashes);

// XXH3-128 of a tensor's elements, row-major: the same whatever boxes they were stored in. Reads them in
// pieces of at most 64 MiB, and throws DamageError as Reader::read does.
std::string content_hash(const Reader& reader, const StoredTensor& tensor);
// Of a whole checkpoint, from the content hashes of its tensors in the order of Manifest::tensors: the
// hash of a line "KIND PARAMETER DTYPE [SHAPE] HASH" for each, the lines sorted.
std::string content_hash(const Manifest& manifest, const std::vector<std::string>& hashes);

}  // namespace sauropod::checkpoint

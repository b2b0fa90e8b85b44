// Which checkpoint several ranks resume from: the newest one that all of them find intact. Each rank
// reads, and verifies, only what it needs; what nobody needs is not read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/peers.h"
#include "checkpoint/reader.h"

namespace sauropod::checkpoint {

// Collective (peers.h). Rank 0 takes the checkpoint of the largest step whose manifest is valid and
// whose files have their sizes; every rank calls `load` with it. When that throws a DamageError on any
// rank, all go on with the next older one, and `load` is called again: it must not rely on having
// been called once. Any other exception ends the search on every rank: rethrown where it came from,
// a base::Error that names the rank elsewhere. What was passed over, and why, is appended to
// `complaints`, the same on every rank. Nothing when no checkpoint is intact.
//
// The store is the same for all ranks, and must outlive the Reader where it is not shared.
std::optional<Reader> load_newest(std::shared_ptr<const storage::ObjectStore> store, Peers& peers,
                                  const std::function<void(const Reader&)>& load,
                                  std::vector<std::string>* complaints = nullptr);
std::optional<Reader> load_newest(const storage::ObjectStore& store, Peers& peers,
                                  const std::function<void(const Reader&)>& load,
                                  std::vector<std::string>* complaints = nullptr);

}  // namespace sauropod::checkpoint

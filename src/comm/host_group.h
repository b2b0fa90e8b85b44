// A group of ranks on processors: the collectives of comm/collectives.h on a background thread, over shared memory when
// all its ranks are on one host and over Gloo otherwise. Only for files of this room.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/world_state.h"

namespace sauropod::comm {

// `number` tells the groups of a world apart on the wire; `memory` is null for Gloo.
std::unique_ptr<Communicator> make_host_group(std::shared_ptr<World::State> world, std::string name, int rank,
                                              std::vector<int> ranks, std::chrono::milliseconds timeout, int number,
                                              std::shared_ptr<SharedMemory> memory);

}  // namespace sauropod::comm

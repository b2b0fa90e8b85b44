// A group of ranks with a GPU each: c10d's ProcessGroupNCCL. Only for files of this room.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/world_state.h"

namespace sauropod::comm {

bool has_nccl();  // whether this build has it

// The GPU is the current device of the thread that makes the group. Calls run on NCCL's own stream, after what was
// queued on the current stream when they were issued; Handle::wait makes the current stream wait, and not the thread
// (but for a barrier).
std::unique_ptr<Communicator> make_nccl_group(std::shared_ptr<World::State> world, std::string name, int rank,
                                              std::vector<int> ranks, std::chrono::milliseconds timeout, int number);

}  // namespace sauropod::comm

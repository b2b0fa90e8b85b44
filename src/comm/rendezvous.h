// How the ranks of a launch meet: over the store, each tells where it is and what it was started with. Only for files of
// this room.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/shared_memory.h"
#include "comm/store.h"
#include "comm/world.h"

namespace sauropod::comm {

struct Meeting {
  std::vector<Place> places;         // by rank
  std::vector<bool> shares_memory;   // by node: its ranks, of which there are several
  std::vector<std::shared_ptr<ProcessWatch>> processes;  // by rank, of this node
  std::string address;               // of this rank, towards the other hosts
  int local_rank = 0;
  int local_size = 1;
};

// Returns on all ranks, or throws on all: CommunicationError naming the ranks that didn't come, base::Error (usage)
// naming what differs. `want_memory`: whether ranks of a host are to share memory.
Meeting meet(Store& store, const LaunchEnvironment& environment, const Description& description, bool want_memory,
             std::chrono::milliseconds timeout);

}  // namespace sauropod::comm

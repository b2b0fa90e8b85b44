// The backends that need no other process. Only for files of this room.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/communicator.h"
#include "comm/world.h"

namespace sauropod::comm {

struct FakeLog {
  std::mutex mutex;
  std::vector<FakeCall> calls;
};

// One rank: outputs become copies of inputs.
std::unique_ptr<Communicator> make_single(std::string name, int world_rank,
                                          std::chrono::milliseconds timeout,
                                          std::shared_ptr<FlightRecorder> recorder);
// Any rank of any group: calls are noted in the log, nothing is moved.
std::unique_ptr<Communicator> make_fake(std::string name, int rank, std::vector<int> ranks,
                                        std::shared_ptr<FakeLog> log);

}  // namespace sauropod::comm

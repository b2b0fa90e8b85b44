// In place of nccl_group.cpp in a build without CUDA.
#include "base/error.h"
#include "comm/nccl_group.h"

namespace sauropod::comm {

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_group(std::shared_ptr<World::State>, std::string, int, std::vector<int>,
                                              std::chrono::milliseconds, int) {
  SAUROPOD_CHECK(false, "a build without CUDA has no NCCL");
}

}  // namespace sauropod::comm

// What the ranks of a training run settle among each other beside the model's own sums.
#pragma once

#include <string>

#include "checkpoint/peers.h"
#include "comm/communicator.h"

namespace sauropod::train {

// The ranks of a checkpoint, over a group. The group outlives it.
class GroupPeers final : public checkpoint::Peers {
 public:
  explicit GroupPeers(comm::Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> gather(std::string bytes) override;
  std::string broadcast(std::string bytes) override;

 private:
  comm::Communicator& group_;
};

// The sum, or the largest, of one number from each rank; the same bits on all.
double sum_over(comm::Communicator& group, const char* label, double value);
double largest_over(comm::Communicator& group, const char* label, double value);

// Why the run should end, when any rank has a reason: the most urgent of theirs.
std::string agree_on_stop(comm::Communicator& group, const std::string& reason);

}  // namespace sauropod::train

// What neighbouring stages of a pipeline send each other: activations forward, their gradients back.
//
// Both sides know the order of the messages between them from the schedule (schedule.h); receives are
// posted in that order, ahead of their use, so that no order of computing can make two stages wait for each
// other.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "parallel/schedule.h"

namespace sauropod::parallel {

// The messages of one step, of one rank. Used by one thread.
class Mail {
 public:
  // `make` gives memory for a microbatch's message. chunks: of each stage.
  Mail(comm::Communicator& pipeline, int64_t chunks, int64_t microbatches,
       std::function<at::Tensor(int64_t microbatch)> make);

  // Sends what an action made to the stage that needs it, in the background.
  void send(const Action& made_by, at::Tensor tensor);
  // What the action `made_by` of another stage made. Waits for it.
  at::Tensor receive(const Action& made_by);
  // Posts the receives up to that one, if they aren't yet.
  void expect(const Action& made_by);
  // Waits until everything sent has left.
  void finish();

 private:
  int64_t stage_of(int64_t chunk) const { return chunk % pipeline_.size(); }
  int64_t receiver(const Action& made_by) const;

  struct Arriving {
    at::Tensor tensor;
    comm::Handle handle;
  };
  using Key = std::pair<bool, std::pair<int64_t, int64_t>>;
  static Key key(const Action& action) {
    return {action.forward, {action.chunk, action.microbatch}};
  }

  comm::Communicator& pipeline_;
  std::function<at::Tensor(int64_t)> make_;
  std::vector<std::deque<Action>> expected_;  // not posted yet, by sender
  std::map<Key, Arriving> arriving_;
  std::deque<Arriving> leaving_;
};

}  // namespace sauropod::parallel

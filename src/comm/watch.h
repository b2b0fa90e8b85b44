// Watches over the calls that a rank waits for: when one takes longer than its group's time-out, when a peer is lost, or
// when another rank has given up, all of them fail with one CommunicationError that names the rank to blame. Only for
// files of this room.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/bulletin.h"
#include "comm/communicator.h"
#include "comm/shared_memory.h"
#include "comm/transport.h"

namespace sauropod::comm {

// Thread-safe. After the first failure everything fails: connections may have been cut in the middle of a message.
class Watch {
 public:
  struct Rank {
    std::string host;
    std::shared_ptr<ProcessWatch> process;  // of ranks on this host, where it can be watched
  };
  // `store`: where it is, for messages; `store_rank`: the rank that serves it, or -1.
  Watch(std::unique_ptr<Bulletin> bulletin, std::shared_ptr<FlightRecorder> recorder, int rank,
        std::vector<Rank> ranks, std::string store, int store_rank);
  ~Watch();

  // Watches an operation until it is done; its waiter, cancel and poll are set before. Throws CommunicationError after
  // a failure.
  void add(std::shared_ptr<Operation> operation, const Communicator& group);
  // A transfer with a rank of the world broke.
  void lost(int rank, const std::string& detail);
  bool ended(int rank) const;  // its process, as far as can be seen from here
  // Calls `interrupt` on this class's thread after a failure, until it is removed; remove() waits for a call under way.
  int on_failure(std::function<void()> interrupt);
  void remove(int listener);

  bool failed() const { return failed_.load(); }
  void check() const;  // throws CommunicationError after a failure
  Bulletin& bulletin() { return *bulletin_; }

 private:
  struct Watched {
    std::shared_ptr<Operation> operation;
    std::string where;  // "group data (4 ranks)"
    std::chrono::milliseconds timeout;
    bool sampled = false;
  };
  void run();
  [[noreturn]] void refuse() const;
  // Finds out who is to blame and settles it with the other ranks.
  std::string explain(int lost_rank, const std::string& detail);
  void fail(const std::string& verdict);

  std::unique_ptr<Bulletin> bulletin_;
  std::shared_ptr<FlightRecorder> recorder_;
  int rank_;
  std::vector<Rank> ranks_;
  std::string store_;
  int store_rank_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<Watched> watched_;
  int lost_rank_ = -1;
  std::string lost_detail_;
  std::string verdict_;
  std::map<int, std::function<void()>> listeners_;
  int next_listener_ = 0;
  std::mutex calling_;  // held while listeners are called
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace sauropod::comm

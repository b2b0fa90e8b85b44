// A call on its way through a backend: what the backends share. Only for files of this room.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sauropod::comm {

struct Communicator::Statistics {
  std::mutex mutex;
  std::vector<CallStatistics> calls;
  std::map<std::string, size_t, std::less<>> index;  // label → place in calls
};

// Made by Communicator, checked before issue(). started() and then finish() or fail() are called once by the
// backend, on any thread; wait() by Handle.
struct Operation {
  using Clock = std::chrono::steady_clock;

  Kind kind = Kind::barrier;
  Reduce reduce = Reduce::sum;
  std::string label;
  uint64_t number = 0;  // from 1, of its group: exchanges have numbers of their own
  // all_reduce and broadcast work in `output` alone.
  at::Tensor input;
  at::Tensor output;
  int root = 0;
  std::vector<int64_t> offsets;  // of gather and scatter: size + 1, in elements
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  int64_t bytes = 0;
  // When set, wait() calls it on the waiting thread instead of waiting for finish(): it returns or throws
  // when the result is there, and calls finish() or fail() itself.
  std::function<void()> waiter;
  std::shared_ptr<Communicator::Statistics> statistics;

  void started();
  void finish();
  void fail(std::exception_ptr error);
  bool done();
  void wait();
  void dropped() noexcept;  // its Handle goes away

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool waited_ = false;
  std::exception_ptr error_;
  Clock::time_point started_{};
};

}  // namespace sauropod::comm

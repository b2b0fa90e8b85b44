// A call on its way through a backend: what the backends share. Only for files of this room.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/flight_recorder.h"

namespace sauropod::comm {

struct Communicator::Statistics {
  std::mutex mutex;
  std::vector<CallStatistics> calls;
  std::map<std::string, size_t, std::less<>> index;  // label → place in calls
};

// Made by Communicator, checked before issue(). The backend calls started() and then finish() or fail(), on any thread,
// of which the first counts; Handle calls wait().
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
  // When set, wait() calls it first, on the waiting thread. It returns when the result is there, after finish(), or
  // when it was cancelled or has reported a lost peer, which lead to fail(). With `detached` wait() is over then, and
  // finish() comes later.
  std::function<void()> waiter;
  bool detached = false;
  // When set: whether the work is done, for a backend that doesn't say so by itself (comm/watch.h asks).
  std::function<bool()> poll;
  // When set: makes a waiter return, after fail() was called. On any thread.
  std::function<void()> cancel;
  FlightRecorder::Entry entry;
  std::shared_ptr<Communicator::Statistics> statistics;

  // How long it has kept ranks waiting: since it was started, or, where nothing happens until somebody waits, since
  // then.
  std::optional<Clock::duration> age();

  void started();
  void finish();
  void fail(std::exception_ptr error);
  bool done();
  void wait();
  void dropped() noexcept;  // its Handle goes away

 private:
  // Lets go of the tensors, which others may still hold an Operation for.
  void release();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool waited_ = false;
  std::exception_ptr error_;
  std::optional<Clock::time_point> started_;
  std::optional<Clock::time_point> blocked_;
};

}  // namespace sauropod::comm

// For tests of what ranks do together: ranks that are threads of the test's process, and a group of them.
//
//   comm::test::run_threads(4, [](comm::Communicator& group) {
//     …EXPECT_EQ(…);   // in each of the four threads
//   });
//
// Calls are carried out at once, in the calling thread, when all ranks have made them; sums are in rank order, as
// in other backends. Ranks that call something different, and a rank that ends while others wait for it, are a
// failure of the test: nothing hangs. Ranks that are processes, and a real backend: comm/test_support.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/operation.h"

namespace sauropod::comm::test {

// Where the threads meet.
class ThreadHub {
 public:
  explicit ThreadHub(int size) : operations_(static_cast<size_t>(size)) {}

  // Waits for all ranks, and returns what each came with.
  std::vector<Operation*> meet(int rank, Operation* operation) {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) throw CommunicationError(failure_);
    operations_[static_cast<size_t>(rank)] = operation;
    if (++arrived_ == operations_.size()) {
      arrived_ = 0;
      ++meeting_;
      changed_.notify_all();
      return operations_;
    }
    changed_.wait(lock, [&, now = meeting_] { return meeting_ != now || !failure_.empty(); });
    if (!failure_.empty()) throw CommunicationError(failure_);
    return operations_;
  }
  // From now on nobody waits.
  void fail(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation*> operations_;  // of the current meeting
  size_t arrived_ = 0;
  uint64_t meeting_ = 0;
  std::string failure_;
};

class ThreadGroup : public Communicator {
 public:
  ThreadGroup(ThreadHub& hub, int rank, std::vector<int> ranks)
      : Communicator("threads", rank, std::move(ranks), std::chrono::seconds(60), nullptr), hub_(hub) {}
  std::string_view backend() const override { return "threads"; }

 private:
  void issue(const std::shared_ptr<Operation>& operation) override {
    const at::NoGradGuard no_grad;
    operation->started();
    try {
      const std::vector<Operation*> all = hub_.meet(rank(), operation.get());
      for (const Operation* other : all)
        if (other->label != operation->label || other->kind != operation->kind) {
          const std::string what = fmt::format("one rank calls '{}', another '{}'", operation->label, other->label);
          hub_.fail(what);
          throw CommunicationError(what);
        }
      const at::Tensor result = compute(*operation, all);
      hub_.meet(rank(), operation.get());  // nobody reads any more
      if (result.defined()) operation->output.view({-1}).copy_(result);
      operation->finish();
    } catch (...) {
      operation->fail(std::current_exception());
    }
  }

  static at::Tensor sum(const std::vector<Operation*>& all, bool of_inputs, Reduce reduce) {
    at::Tensor total;
    for (const Operation* each : all) {
      const at::Tensor& x = of_inputs ? each->input : each->output;
      const at::Tensor wide = x.view({-1}).to(x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type());
      total = !total.defined() ? wide.clone() : reduce == Reduce::sum ? total.add(wide) : total.maximum(wide);
    }
    return total.to(of_inputs ? all[0]->input.scalar_type() : all[0]->output.scalar_type());
  }

  // The flat output; undefined for a barrier.
  at::Tensor compute(const Operation& mine, const std::vector<Operation*>& all) const {
    const auto rank = static_cast<size_t>(this->rank());
    switch (mine.kind) {
      case Kind::all_reduce: return sum(all, false, mine.reduce);
      case Kind::reduce_scatter:
        return sum(all, true, mine.reduce)
            .slice(0, mine.offsets[rank], mine.offsets[rank + 1]);
      case Kind::all_gather: {
        const at::Tensor whole = mine.output.view({-1}).clone();
        for (size_t i = 0; i < all.size(); ++i)
          whole.slice(0, mine.offsets[i], mine.offsets[i + 1]).copy_(all[i]->input.view({-1}));
        return whole;
      }
      case Kind::broadcast: return all[static_cast<size_t>(mine.root)]->output.view({-1}).clone();
      case Kind::barrier: return {};
      case Kind::exchange: break;
    }
    throw CommunicationError("threads exchange nothing");
  }

  ThreadHub& hub_;
};

// Runs body(group) for each rank at once. An exception that leaves it is a failure of the test, and so is a rank that
// ends before the others have done with it.
inline void run_threads(int size, const std::function<void(Communicator&)>& body) {
  ThreadHub hub(size);
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadGroup group(hub, rank, ranks);
        body(group);
        group.barrier("end").wait();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " of " << size << ": " << error.what();
        hub.fail(fmt::format("rank {} has failed", rank));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sauropod::comm::test

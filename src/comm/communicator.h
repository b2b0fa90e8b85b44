// One group of ranks that compute together, and what they do together: reduce, gather, scatter,
// broadcast, wait for each other, exchange tensors. Described in docs/communication.md.
//
//   comm::Handle sum = group.all_reduce("loss", loss);   // in place, in the background
//   …compute…
//   sum.wait();                                           // throws CommunicationError
//
// The collectives (all but exchange) of one group must be issued in the same order on all its ranks;
// exchanges need only match between each pair of ranks. Calls of one group are issued by one thread at
// a time; different groups may be used from different threads, and a Handle may be waited for on any
// thread. A group's background thread does the work, so that it overlaps with computing; handles may be
// waited for in any order.
//
// Sums are deterministic and the same bits on every rank: contributions are added in rank order, double in
// double, float in float, bf16 in float and rounded once. (nccl adds in an order of its own.)
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sauropod::comm {

enum class Reduce : uint8_t { sum, max };
enum class Kind : uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, barrier, exchange };
std::string_view name_of(Kind kind);

// A peer that is dead, stopped or late, or a connection that was cut. The message names the rank to
// blame where it can be found (comm/flight_recorder.h). The whole World is unusable afterwards: the
// process is expected to end.
class CommunicationError : public base::Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(message) {}
};

struct Transfer {
  int peer;           // rank within the group, not this one
  at::Tensor tensor;  // contiguous
};

struct Operation;      // comm/operation.h
class FlightRecorder;  // comm/flight_recorder.h

// The promise of a call. Cheap to move. It must be waited for: destroying an unfinished one is a bug and
// ends the program, except while an exception unwinds or after the group has failed. It keeps the call's
// tensors alive; they belong to the group until wait() returns.
class Handle {
 public:
  Handle() = default;  // of nothing; wait() returns at once
  explicit Handle(std::shared_ptr<Operation> operation);
  ~Handle();
  Handle(Handle&& other) noexcept = default;
  Handle& operator=(Handle&& other);

  // Returns when the result is there. On a GPU: when work queued on the current stream from now on sees
  // it. Throws CommunicationError. A second call returns at once.
  void wait();
  // Whether wait() would return without waiting.
  bool done() const;

 private:
  std::shared_ptr<Operation> operation_;
};

// What the calls of one label have cost this rank since the group was made.
struct CallStatistics {
  std::string label;
  Kind kind;
  int64_t calls = 0;
  int64_t bytes = 0;           // of tensors given, not of traffic
  double busy_seconds = 0;     // from being taken up to being finished, waiting for late ranks included
  double exposed_seconds = 0;  // that wait() blocked its caller; on a GPU, where it blocks a stream: 0
};

class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // this process's place in ranks()
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // ranks of the world, by rank here
  std::chrono::milliseconds timeout() const { return timeout_; }
  virtual std::string_view backend() const = 0;  // "single", "gloo", "shared memory", "nccl", "fake"

  // Labels name calls in statistics, in the flight recorder and in errors; the same on all ranks, at most
  // 47 bytes are recorded. Tensors are contiguous, of float, double, bf16, int32, int64 or uint8, on the
  // backend's device and not changed nor read (outputs) until the handle was waited for.

  // tensor [any shape], the same on all ranks, becomes the reduction over the ranks.
  Handle all_reduce(std::string_view label, at::Tensor tensor, Reduce reduce = Reduce::sum);

  // output [size·n] becomes the inputs [n] of all ranks in their order. The input may be this rank's own
  // part of the output.
  Handle all_gather(std::string_view label, at::Tensor input, at::Tensor output);
  // Unequal parts: rank r's input is output[offsets[r], offsets[r + 1]); size + 1 offsets from 0 to the
  // output's length, the same on all ranks. Parts may be empty.
  Handle all_gather(std::string_view label, at::Tensor input, at::Tensor output,
                    std::vector<int64_t> offsets);

  // output [n] becomes the reduction of every rank's input[rank·n, (rank + 1)·n). The output may be this
  // rank's own part of the input; the rest of the input is left as it was.
  Handle reduce_scatter(std::string_view label, at::Tensor input, at::Tensor output,
                        Reduce reduce = Reduce::sum);
  Handle reduce_scatter(std::string_view label, at::Tensor input, at::Tensor output,
                        std::vector<int64_t> offsets, Reduce reduce = Reduce::sum);

  // tensor [any shape] becomes root's; root is a rank of this group.
  Handle broadcast(std::string_view label, at::Tensor tensor, int root);

  // Done when every rank has called it.
  Handle barrier(std::string_view label);

  // Sends and receives, all posted together. The k-th tensor sent to a peer is the k-th it receives from
  // this rank, whatever other pairs do; shapes and types agree on both sides.
  Handle exchange(std::string_view label, std::vector<Transfer> sends, std::vector<Transfer> receives);

  // By label, in order of first use. Thread-safe.
  std::vector<CallStatistics> statistics() const;

 protected:
  Communicator(std::string name, int rank, std::vector<int> ranks, std::chrono::milliseconds timeout,
               std::shared_ptr<FlightRecorder> recorder);
  // Takes up a checked operation. Calls operation->finish() or fail() when it is done, on any thread.
  virtual void issue(const std::shared_ptr<Operation>& operation) = 0;

 private:
  friend struct Operation;
  struct Statistics;
  Handle start(std::shared_ptr<Operation> operation);

  std::string name_;
  int rank_;
  std::vector<int> ranks_;
  std::chrono::milliseconds timeout_;
  uint64_t collectives_ = 0;  // issued so far
  uint64_t exchanges_ = 0;
  std::shared_ptr<Statistics> statistics_;
  std::shared_ptr<FlightRecorder> recorder_;  // may be null
  int recorded_group_ = 0;
};

}  // namespace sauropod::comm

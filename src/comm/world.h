// All ranks of a launch, as one of them sees it: who it is, who the others are, and the groups it makes
// with them. Described in docs/communication.md.
//
//   auto world = comm::World::start(comm::read_launch_environment(), options, {.device = "cpu"});
//   auto data = world->make_group("data", {0, 2, 4, 6});
//
// Threads: make_group and leave() are called by one thread; the rest is thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/flight_recorder.h"
#include "comm/launch_environment.h"
#include "config/section.h"

namespace sauropod::comm {

// [communication]
struct CommunicationOptions {
  std::string backend = "auto";
  std::chrono::seconds timeout{300};          // of a collective
  std::chrono::seconds startup_timeout{600};  // until all ranks are there, and for making a group
  std::chrono::seconds storage_timeout{1800}; // for loading and saving
  std::string interface = {};                 // of the network; empty: the one that reaches the store
  bool shared_memory = true;                  // between ranks of one host
  void declare(config::Section& section);
};

// What must be the same on all ranks, compared at the start: ("build", id), ("train.steps", "1000"), ….
using Description = std::vector<std::pair<std::string, std::string>>;

struct StartOptions {
  std::string device = "cpu";  // "cpu" or "cuda": decides the backend when it is "auto"
  Description description;
};

// Where a rank runs.
struct Place {
  std::string host;
  int node = 0;  // hosts counted from 0 in order of their first rank; ranks of a node share memory
};

// The calls that fake groups took, of all of them together, in order.
struct FakeCall {
  std::string group;
  int size;
  std::string label;
  Kind kind;
  int64_t bytes;  // of tensors given
};

class World {
 public:
  // Meets all other ranks. Throws CommunicationError when they don't come in time (naming them), the
  // store's port is taken or its host doesn't answer, and base::Error (usage) when the descriptions differ:
  // on every rank, with the rank, the key and both values.
  static std::unique_ptr<World> start(const LaunchEnvironment& environment,
                                      const CommunicationOptions& options,
                                      const StartOptions& start = {});
  // A world that exists only in this process: groups of any size take calls, look at shapes and move
  // nothing, so that a layout of hundreds of ranks is rehearsed on the meta device. `node_size` ranks
  // share a host.
  static std::unique_ptr<World> fake(int rank, int size, int node_size = 8);

  ~World();  // groups may outlive it

  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  const std::string& host() const;
  std::string store_address() const;  // "host:port"; empty for one rank
  std::string_view backend() const;   // "single", "gloo", "nccl", "fake"
  const std::vector<Place>& places() const;  // by rank
  const CommunicationOptions& options() const;

  // A group of the given ranks, this one among them, made by all its members in the same order among
  // groups of this name and these ranks. The group's rank order is the order given. Groups can be dropped
  // and made again any number of times. Throws CommunicationError after startup_timeout.
  std::unique_ptr<Communicator> make_group(const std::string& name, std::vector<int> ranks,
                                           std::optional<std::chrono::milliseconds> timeout = {});

  // Tells the others why this rank is about to end, so that their errors name the cause: for failures
  // that aren't CommunicationErrors. Never throws.
  void report_failure(const std::string& message) noexcept;

  FlightRecorder& recorder();  // not of a fake world
  std::vector<FakeCall> fake_calls() const;

  struct State;  // comm/world_state.h

 private:
  explicit World(std::shared_ptr<State> state);
  std::string wait_for(const std::vector<int>& ranks, const std::string& key, const std::string& group);
  std::shared_ptr<State> state_;
};

}  // namespace sauropod::comm

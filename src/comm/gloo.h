// A transport between any ranks: messages of c10d's ProcessGroupGloo over TCP. One process group (a mesh of
// connections, made once) carries all groups of a world; a message's tag tells them apart. Only for files of this
// room.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/operation.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace sauropod::comm {

// Thread-safe. After a failure it is never destroyed (see abandon()): peers that hang would hold up its end.
class GlooMesh {
 public:
  // Connects all ranks of the world, each listening on the given interface (by name), or on the given address
  // when the name is empty. Throws CommunicationError, base::Error (usage) when there is no such interface.
  static std::shared_ptr<GlooMesh> connect(const Store& store, int rank, int size, const std::string& interface,
                                           const std::string& address, std::chrono::milliseconds timeout);

  // Collectives of the group with this number (below 2^16), for one thread; `ranks` are those of the world.
  std::unique_ptr<Transport> transport(int group, std::vector<int> ranks);
  // Posts the transfers of an exchange at once and sets its waiter and its cancel. The waiter calls `lost` when
  // a peer is. `posted` counts what was sent to and received from each rank of the group so far: made with twice
  // the group's size.
  void exchange(int group, const std::vector<int>& ranks, const std::shared_ptr<Operation>& operation,
                std::vector<uint64_t>& posted, std::function<void(const PeerLost&)> lost);

  // Keeps a mesh for the rest of the process.
  static void abandon(std::shared_ptr<GlooMesh> mesh);

  struct State;
  explicit GlooMesh(std::unique_ptr<State> state);
  ~GlooMesh();

 private:
  std::unique_ptr<State> state_;
};

// The address of this host from which packets to `host` leave; empty when it can't be resolved.
std::string address_towards(const std::string& host, int port);

}  // namespace sauropod::comm

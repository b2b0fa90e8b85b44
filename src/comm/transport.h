// How bytes get from rank to rank of one group. Only for files of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "comm/communicator.h"

namespace sauropod::comm {

// A peer's end was lost. `peer` is a rank of the group.
struct PeerLost {
  int peer;
  std::string detail;  // "its process ended", "connection closed: …"
};

// Thrown out of wait() after interrupt().
struct Interrupted {};

// Moves bytes between this rank and the others, first in first out for each peer and direction; both sides
// name the same sizes in the same order. Used by one thread, but for interrupt().
class Transport {
 public:
  struct Ticket {
    int peer = 0;
    bool receive = false;
    uint64_t number = 0;  // of this peer and direction, from 1; 0: nothing to wait for
  };

  virtual ~Transport() = default;

  // Post a transfer and return; the bytes stay in place until it was waited for.
  virtual Ticket send(int peer, const void* data, size_t bytes) = 0;
  virtual Ticket receive(int peer, void* data, size_t bytes) = 0;
  // Returns when that transfer and all before it of the same peer and direction are done. Throws PeerLost or
  // Interrupted.
  virtual void wait(const Ticket& ticket) = 0;
  // Makes this and every later wait() throw Interrupted. On any thread.
  virtual void interrupt() = 0;
};

}  // namespace sauropod::comm

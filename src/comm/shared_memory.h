// A transport between ranks of one host: a ring of bytes in shared memory for each pair and direction. The first
// rank makes the memory (memfd, so that it has no name and no end in /dev/shm, and goes with the last process);
// the others open it through /proc. Only for files of this room.
//
// A ring stays in the processor's cache, so that a byte costs one copy in and one out at the cache's speed; and
// a rank that has nothing to copy sleeps on its bell (futex), which peers ring after copying.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport.h"

namespace sauropod::comm {

// The mapped memory of one group. Collectives and exchanges have rings and bells of their own (lanes).
class SharedMemory {
 public:
  static constexpr int kLanes = 2;

  // Makes it for `size` ranks; the descriptor stays open until close_descriptor(). Throws base::Error.
  static std::shared_ptr<SharedMemory> make(int size);
  // Opens what another process made; nothing when it can't be reached from here.
  static std::shared_ptr<SharedMemory> open(pid_t process, int descriptor, int size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  int descriptor() const { return descriptor_; }
  void close_descriptor();
  // This rank has dropped its group: it sends and receives no more.
  void leave(int rank);
  bool left(int rank) const;
  void ring_bells();  // of all ranks, so that they notice

 private:
  friend class SharedTransport;
  struct Bell;
  struct Ring;
  SharedMemory(int descriptor, int size);
  Bell& bell(int lane, int rank) const;
  Ring& ring(int lane, int from, int to) const;
  std::atomic<uint32_t>& gone(int rank) const;

  int descriptor_ = -1;
  int size_ = 0;
  size_t ring_bytes_ = 0;  // a power of two
  size_t ring_stride_ = 0;
  size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

class SharedTransport : public Transport {
 public:
  // `dead` tells whether a rank's process has ended.
  SharedTransport(std::shared_ptr<SharedMemory> memory, int lane, int rank, std::function<bool(int)> dead);

  Ticket send(int peer, const void* data, size_t bytes) override;
  Ticket receive(int peer, void* data, size_t bytes) override;
  void wait(const Ticket& ticket) override;
  void interrupt() override;

  // For a thread that serves many transfers at once: copies what can be copied; false when nothing could.
  bool pump();
  bool done(const Ticket& ticket) const;
  // Throws PeerLost when the ticket's peer is gone and has left nothing to copy.
  void check_peer(const Ticket& ticket);
  // Sleeps until a peer or wake() rings, or 100 ms. Call after a pump() that moved nothing.
  void sleep();
  void wake();  // on any thread

 private:
  struct Job {
    std::byte* data;
    size_t left;
  };
  struct Queue {
    std::deque<Job> jobs;
    uint64_t posted = 0;
    uint64_t done = 0;
  };
  bool push(int peer);
  bool pull(int peer);
  Ticket post(int peer, bool receive, std::byte* data, size_t bytes);

  std::shared_ptr<SharedMemory> memory_;
  int lane_;
  int rank_;
  std::function<bool(int)> dead_;
  std::vector<Queue> sends_, receives_;  // by peer
  std::atomic<bool> interrupted_{false};
};

// Watches processes of this host.
class ProcessWatch {
 public:
  // Nothing when the process can't be watched from here (another process namespace, an old kernel).
  static std::optional<ProcessWatch> open(pid_t process);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  bool ended() const;

 private:
  explicit ProcessWatch(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace sauropod::comm

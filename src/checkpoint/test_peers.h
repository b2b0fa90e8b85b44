// Ranks for the tests of this room: threads or processes that are joined to rank 0 by sockets.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/peers.h"

namespace sauropod::checkpoint {

// The sockets of all ranks, before each takes its own.
class Wires {
 public:
  explicit Wires(int ranks) : pairs_(static_cast<size_t>(ranks)) {
    for (size_t rank = 1; rank < pairs_.size(); ++rank)
      SAUROPOD_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, pairs_[rank].data()) == 0);
  }
  // On rank 0 one to each rank (the first is -1), elsewhere the one to rank 0.
  std::vector<int> of(int rank) const {
    if (rank > 0) return {pairs_[static_cast<size_t>(rank)][1]};
    std::vector<int> ends;
    for (size_t other = 0; other < pairs_.size(); ++other)
      ends.push_back(other == 0 ? -1 : pairs_[other][0]);
    return ends;
  }
  // In a process that holds one rank, or none (-1).
  void close_all_but(int rank) const {
    for (int other = 0; other < static_cast<int>(pairs_.size()); ++other)
      if (other != rank)
        for (const int end : of(other))
          if (end >= 0) ::close(end);
  }

 private:
  std::vector<std::array<int, 2>> pairs_;
};

class SocketPeers final : public Peers {
 public:
  SocketPeers(const Wires& wires, int rank, int size)
      : rank_(rank), size_(size), ends_(wires.of(rank)) {}
  ~SocketPeers() override {
    for (const int end : ends_)
      if (end >= 0) ::close(end);
  }
  SocketPeers(const SocketPeers&) = delete;
  SocketPeers& operator=(const SocketPeers&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> gather(std::string bytes) override {
    check_thread();
    if (rank_ > 0) return send(0, bytes), std::vector<std::string>();
    std::vector<std::string> all{std::move(bytes)};
    for (int rank = 1; rank < size_; ++rank) all.push_back(receive(rank));
    return all;
  }
  std::string broadcast(std::string bytes) override {
    check_thread();
    if (rank_ > 0) return receive(0);
    for (int rank = 1; rank < size_; ++rank) send(rank, bytes);
    return bytes;
  }

 private:
  // Collectives come from the thread that has the Peers, never from one of the writer's.
  void check_thread() const {
    SAUROPOD_CHECK(std::this_thread::get_id() == thread_, "a collective from another thread");
  }
  int end_to(int rank) const { return ends_[static_cast<size_t>(rank_ == 0 ? rank : 0)]; }
  void send(int rank, const std::string& bytes) {
    const uint64_t size = bytes.size();
    const std::string message = std::string(reinterpret_cast<const char*>(&size), 8) + bytes;
    for (size_t at = 0; at < message.size();) {
      const ssize_t sent =
          ::send(end_to(rank), message.data() + at, message.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) base::fail("rank {} is gone", rank);
      at += static_cast<size_t>(sent);
    }
  }
  void receive_all(int rank, void* out, size_t size) {
    for (size_t at = 0; at < size;) {
      const ssize_t got = ::recv(end_to(rank), static_cast<char*>(out) + at, size - at, 0);
      if (got <= 0) base::fail("rank {} is gone", rank);
      at += static_cast<size_t>(got);
    }
  }
  std::string receive(int rank) {
    uint64_t size = 0;
    receive_all(rank, &size, sizeof(size));
    std::string bytes(size, '\0');
    receive_all(rank, bytes.data(), size);
    return bytes;
  }

  const int rank_, size_;
  const std::vector<int> ends_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

// Runs `work` as every rank, each in a thread of its own, and returns what each threw ("" for nothing).
// A rank that throws is gone for the others.
inline std::vector<std::string> run_ranks(int size, const std::function<void(Peers&)>& work) {
  const Wires wires(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        SocketPeers peers(wires, rank, size);
        work(peers);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace sauropod::checkpoint

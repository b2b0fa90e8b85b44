#include "comm/gloo.h"

#include <ATen/ops/from_blob.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/error.h"
#include "comm/c10d_store.h"

namespace sauropod::comm {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// Time-outs are the world's business (comm/watch.h): Gloo's own would close every connection of the mesh.
constexpr std::chrono::hours kForever(24 * 365);

// Gloo's errors begin with a place in its source and end with advice and a backtrace.
std::string plain(const char* text) {
  std::string_view line(text);
  line = line.substr(0, line.find('\n'));
  if (line.starts_with('['))
    if (const auto end = line.find("] "); end != std::string_view::npos) line.remove_prefix(end + 2);
  return std::string(line.substr(0, line.find(". This is typically")));
}

// A tag: group (16 bits), lane (1), number of the message between the pair modulo 2^14. Messages of one tag keep
// their order, so that the number may come round again.
int tag_of(int group, int lane, uint64_t number) {
  return group << 15 | lane << 14 | static_cast<int>(number & ((1 << 14) - 1));
}

}  // namespace

struct GlooMesh::State {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::mutex mutex;  // c10d numbers calls without a lock

  Work send(int rank, const void* data, size_t bytes, int tag) {
    std::vector<at::Tensor> tensors = {
        at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte))};
    std::lock_guard lock(mutex);
    return group->send(tensors, rank, tag);
  }
  Work receive(int rank, void* data, size_t bytes, int tag) {
    std::vector<at::Tensor> tensors = {
        at::from_blob(data, {static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte))};
    std::lock_guard lock(mutex);
    return group->recv(tensors, rank, tag);
  }
};

namespace {

// Works whose buffers a connection may still write to are kept for the rest of the process.
void keep_forever(std::vector<Work> works) {
  static std::mutex mutex;
  static auto* kept = new std::vector<Work>;
  std::lock_guard lock(mutex);
  for (Work& work : works) kept->push_back(std::move(work));
}

class GlooTransport : public Transport {
 public:
  GlooTransport(GlooMesh::State& mesh, int group, std::vector<int> ranks)
      : mesh_(mesh), group_(group), ranks_(std::move(ranks)), queues_(ranks_.size() * 2) {}

  ~GlooTransport() override {
    std::vector<Work> works;
    for (Queue& queue : queues_) works.insert(works.end(), queue.works.begin(), queue.works.end());
    if (!works.empty()) keep_forever(std::move(works));
  }

  Ticket send(int peer, const void* data, size_t bytes) override {
    if (bytes == 0) return {};
    Queue& queue = queue_of(peer, false);
    try {
      queue.works.push_back(mesh_.send(ranks_[peer], data, bytes, tag_of(group_, 0, queue.posted)));
    } catch (const std::exception& error) {
      throw PeerLost{peer, plain(error.what())};
    }
    return {.peer = peer, .receive = false, .number = ++queue.posted};
  }

  Ticket receive(int peer, void* data, size_t bytes) override {
    if (bytes == 0) return {};
    Queue& queue = queue_of(peer, true);
    try {
      queue.works.push_back(mesh_.receive(ranks_[peer], data, bytes, tag_of(group_, 0, queue.posted)));
    } catch (const std::exception& error) {
      throw PeerLost{peer, plain(error.what())};
    }
    return {.peer = peer, .receive = true, .number = ++queue.posted};
  }

  void wait(const Ticket& ticket) override {
    Queue& queue = queue_of(ticket.peer, ticket.receive);
    while (queue.done < ticket.number) {
      {
        std::lock_guard lock(mutex_);
        if (interrupted_) throw Interrupted{};
        current_ = queue.works.front();
      }
      std::string lost;
      bool complete = false;
      try {
        complete = current_->wait();
      } catch (const std::exception& error) {
        lost = plain(error.what());
      }
      std::lock_guard lock(mutex_);
      current_.reset();
      if (interrupted_) throw Interrupted{};
      if (!lost.empty() || !complete)
        throw PeerLost{ticket.peer, lost.empty() ? "the transfer was broken off" : lost};
      queue.works.pop_front();
      ++queue.done;
    }
  }

  void interrupt() override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (current_) current_->abort();
  }

 private:
  struct Queue {
    std::deque<Work> works;
    uint64_t posted = 0;
    uint64_t done = 0;
  };
  Queue& queue_of(int peer, bool receive) { return queues_[static_cast<size_t>(peer) * 2 + receive]; }

  GlooMesh::State& mesh_;
  int group_;
  std::vector<int> ranks_;
  std::vector<Queue> queues_;
  std::mutex mutex_;  // of what follows
  Work current_;
  bool interrupted_ = false;
};

// The works of one exchange, shared by its waiter and its cancel.
struct Posted {
  std::vector<std::pair<int, Work>> works;  // with the peer
  std::atomic<bool> cancelled{false};
  std::atomic<bool> complete{false};

  ~Posted() {
    if (complete) return;
    std::vector<Work> kept;
    for (auto& [peer, work] : works) kept.push_back(work);
    keep_forever(std::move(kept));
  }
};

}  // namespace

std::shared_ptr<GlooMesh> GlooMesh::connect(const Store& store, int rank, int size, const std::string& interface,
                                            const std::string& address, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->threads = 1;  // serves Gloo's own collectives, which aren't used
  if (!interface.empty() && if_nametoindex(interface.c_str()) == 0)
    base::fail_usage("communication.interface = \"{}\": this host ({}) has no such network interface", interface,
                     address);
  auto state = std::make_unique<State>();
  try {
    options->devices = {interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(address)
                                          : c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
    // A connection of its own: the mesh waits for keys. Those of an earlier attempt with the same store have
    // addresses where nobody listens any more.
    auto connection = store.client().store->clone();
    connection->setTimeout(timeout);
    state->group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(store.prefix() + "gloo", connection), rank, size, options);
    state->group->setTimeout(kForever);
  } catch (const std::exception& error) {
    throw CommunicationError(fmt::format(
        "rank {} could not connect to the other ranks from {}: {}. Do firewalls let the ranks reach each other on "
        "any port? communication.interface chooses another network",
        rank, interface.empty() ? address : "interface " + interface, plain(error.what())));
  }
  return std::make_shared<GlooMesh>(std::move(state));
}

GlooMesh::GlooMesh(std::unique_ptr<State> state) : state_(std::move(state)) {}
GlooMesh::~GlooMesh() = default;

std::unique_ptr<Transport> GlooMesh::transport(int group, std::vector<int> ranks) {
  return std::make_unique<GlooTransport>(*state_, group, std::move(ranks));
}

void GlooMesh::exchange(int group, const std::vector<int>& ranks, const std::shared_ptr<Operation>& operation,
                        std::vector<uint64_t>& posted, std::function<void(const PeerLost&)> lost) {
  auto all = std::make_shared<Posted>();
  int peer = 0;
  try {
    for (const auto& [to, tensor] : operation->receives) {
      peer = to;
      if (tensor.nbytes() > 0)
        all->works.emplace_back(to, state_->receive(ranks[to], tensor.mutable_data_ptr(), tensor.nbytes(),
                                                    tag_of(group, 1, posted[to * 2 + 1]++)));
    }
    for (const auto& [to, tensor] : operation->sends) {
      peer = to;
      if (tensor.nbytes() > 0)
        all->works.emplace_back(to, state_->send(ranks[to], tensor.const_data_ptr(), tensor.nbytes(),
                                                 tag_of(group, 1, posted[to * 2]++)));
    }
  } catch (const std::exception& error) {
    lost({peer, plain(error.what())});
    return;
  }
  operation->cancel = [all] {
    all->cancelled = true;
    for (auto& [rank, work] : all->works) work->abort();
  };
  operation->waiter = [all, lost, self = std::weak_ptr(operation)] {
    for (auto& [rank, work] : all->works) {
      bool complete = false;
      std::string why = "the transfer was broken off";
      try {
        complete = !all->cancelled && work->wait();
      } catch (const std::exception& error) {
        why = plain(error.what());
      }
      if (all->cancelled) return;  // the canceller has failed the operation
      if (!complete) return lost({rank, why});
    }
    all->complete = true;
    if (const auto operation = self.lock()) operation->finish();
  };
}

void GlooMesh::abandon(std::shared_ptr<GlooMesh> mesh) {
  if (mesh) new std::shared_ptr<GlooMesh>(std::move(mesh));
}

std::string address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* at = found; at && address.empty(); at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    char text[INET6_ADDRSTRLEN] = {};
    // Connecting a datagram socket sends nothing: it only looks up the route.
    if (fd >= 0 && ::connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      address = text;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return address;
}

}  // namespace sauropod::comm

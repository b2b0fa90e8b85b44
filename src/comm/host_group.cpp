#include "comm/host_group.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "comm/collectives.h"
#include "comm/operation.h"

namespace sauropod::comm {
namespace {

// For calls whose group goes away first.
std::exception_ptr dropped() {
  return std::make_exception_ptr(CommunicationError("the group was dropped before its calls were done"));
}

// Operations on their way to a background thread, which is started with the first.
class Lane {
 public:
  explicit Lane(std::function<void()> work) : work_(std::move(work)) {}

  void put(std::shared_ptr<Operation> operation) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
    if (!thread_.joinable()) thread_ = std::thread(work_);
    changed_.notify_one();
  }
  // Waits for the next operation; null when the lane ends.
  std::shared_ptr<Operation> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    return pop();
  }
  // The next operation if there is one.
  std::shared_ptr<Operation> poll() {
    std::lock_guard lock(mutex_);
    return pop();
  }
  bool stopping() {
    std::lock_guard lock(mutex_);
    return stopping_;
  }
  void stop() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  // After stop().
  void join() {
    if (thread_.joinable()) thread_.join();
    for (const auto& operation : queue_) operation->fail(dropped());
    queue_.clear();
  }

 private:
  std::shared_ptr<Operation> pop() {
    if (stopping_ || queue_.empty()) return nullptr;
    auto operation = std::move(queue_.front());
    queue_.pop_front();
    return operation;
  }

  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

class HostGroup : public Communicator {
 public:
  HostGroup(std::shared_ptr<World::State> world, std::string name, int rank, std::vector<int> ranks,
            std::chrono::milliseconds timeout, int number, std::shared_ptr<SharedMemory> memory)
      : Communicator(std::move(name), rank, std::move(ranks), timeout, world->recorder),
        world_(std::move(world)),
        number_(number),
        memory_(std::move(memory)),
        collectives_([this] { run_collectives(); }),
        exchanges_([this] { run_exchanges(); }) {
    if (memory_) {
      const auto dead = [watch = world_->watch.get(), ranks = this->ranks()](int peer) {
        return watch->ended(ranks[peer]);
      };
      transport_ = std::make_unique<SharedTransport>(memory_, 0, rank, dead);
      exchange_transport_ = std::make_unique<SharedTransport>(memory_, 1, rank, dead);
    } else {
      transport_ = world_->gloo->transport(number_, this->ranks());
      posted_.resize(2 * this->ranks().size());
    }
    listener_ = world_->watch->on_failure([this] { interrupt(); });
  }

  ~HostGroup() override {
    world_->watch->remove(listener_);
    collectives_.stop();
    exchanges_.stop();
    interrupt();
    collectives_.join();
    exchanges_.join();
    if (memory_) memory_->leave(rank());
  }

  std::string_view backend() const override { return memory_ ? "shared memory" : "gloo"; }

 private:
  void interrupt() {
    transport_->interrupt();
    if (exchange_transport_) exchange_transport_->interrupt();
  }

  void issue(const std::shared_ptr<Operation>& operation) override {
    if (operation->kind == Kind::exchange && !memory_) {
      world_->watch->check();
      operation->started();
      world_->gloo->exchange(number_, ranks(), operation, posted_, [this](const PeerLost& lost) { report(lost); });
      return world_->watch->add(operation, *this);
    }
    world_->watch->add(operation, *this);
    if (operation->kind == Kind::exchange) {
      exchanges_.put(operation);
      exchange_transport_->wake();
    } else {
      collectives_.put(operation);
    }
  }

  void report(const PeerLost& lost) { world_->watch->lost(ranks()[lost.peer], lost.detail); }

  void run_collectives() {
    std::vector<std::byte> scratch;
    while (const auto operation = collectives_.take()) {
      operation->started();
      try {
        run_collective(*transport_, rank(), size(), *operation, scratch);
        operation->finish();
      } catch (const PeerLost& lost) {
        return report(lost);
      } catch (const Interrupted&) {
        return operation->fail(dropped());
      } catch (...) {
        return operation->fail(std::current_exception());
      }
    }
  }

  // Over shared memory: all exchanges under way are served at once, because a peer may need a later one first.
  void run_exchanges() {
    struct Active {
      std::shared_ptr<Operation> operation;
      std::vector<Transport::Ticket> tickets;
    };
    std::vector<Active> active;
    SharedTransport& transport = *exchange_transport_;
    while (!exchanges_.stopping()) {
      while (auto operation = exchanges_.poll()) {
        operation->started();
        Active entry{std::move(operation), {}};
        for (const auto& [peer, tensor] : entry.operation->receives)
          entry.tickets.push_back(transport.receive(peer, tensor.mutable_data_ptr(), tensor.nbytes()));
        for (const auto& [peer, tensor] : entry.operation->sends)
          entry.tickets.push_back(transport.send(peer, tensor.const_data_ptr(), tensor.nbytes()));
        active.push_back(std::move(entry));
      }
      const bool moved = transport.pump();
      std::erase_if(active, [&](Active& entry) {
        std::erase_if(entry.tickets, [&](const auto& ticket) { return transport.done(ticket); });
        if (entry.tickets.empty()) entry.operation->finish();
        return entry.tickets.empty();
      });
      if (moved) continue;
      try {
        for (const Active& entry : active)
          for (const auto& ticket : entry.tickets) transport.check_peer(ticket);
      } catch (const PeerLost& lost) {
        return report(lost);
      }
      transport.sleep();
    }
    for (const Active& entry : active) entry.operation->fail(dropped());
  }

  std::shared_ptr<World::State> world_;
  int number_;
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Transport> transport_;                  // of collectives
  std::unique_ptr<SharedTransport> exchange_transport_;   // null for Gloo
  std::vector<uint64_t> posted_;                          // exchanges over Gloo
  int listener_ = 0;
  Lane collectives_;
  Lane exchanges_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_group(std::shared_ptr<World::State> world, std::string name, int rank,
                                              std::vector<int> ranks, std::chrono::milliseconds timeout, int number,
                                              std::shared_ptr<SharedMemory> memory) {
  return std::make_unique<HostGroup>(std::move(world), std::move(name), rank, std::move(ranks), timeout, number,
                                     std::move(memory));
}

}  // namespace sauropod::comm

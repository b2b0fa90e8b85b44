#include "comm/nccl_group.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "base/error.h"
#include "comm/c10d_store.h"
#include "comm/operation.h"

namespace sauropod::comm {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// Time-outs are the world's business (comm/watch.h), which names the culprit and then aborts: c10d's own would end the
// process without a word about it.
constexpr std::chrono::hours kForever(24 * 365);

std::string plain(const char* text) {
  const std::string_view whole(text);
  return std::string(whole.substr(0, whole.find('\n')));
}

class NcclGroup : public Communicator {
 public:
  NcclGroup(std::shared_ptr<World::State> world, std::string name, int rank, std::vector<int> ranks,
            std::chrono::milliseconds timeout, int number)
      : Communicator(std::move(name), rank, std::move(ranks), timeout, world->recorder), world_(std::move(world)) {
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 1);
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 1);
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = kForever;
    auto store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}nccl/{}", world_->store->prefix(), number),
                                                        world_->store->client().store->clone());
    try {
      group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size(), options);
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format("NCCL could not make group {} on rank {}: {}", this->name(),
                                           this->ranks()[rank], plain(error.what())));
    }
    listener_ = world_->watch->on_failure([this] { group_->abort(); });
  }

  ~NcclGroup() override {
    world_->watch->remove(listener_);
    if (world_->watch->failed())
      group_->abort();
    else
      group_->shutdown();
  }

  std::string_view backend() const override { return "nccl"; }

 private:
  void issue(const std::shared_ptr<Operation>& operation) override {
    world_->watch->check();
    operation->started();
    Work work;
    try {
      work = start(*operation);
    } catch (const std::exception& error) {
      operation->fail(std::make_exception_ptr(CommunicationError(
          fmt::format("{} '{}' of group {} failed in NCCL: {}", name_of(operation->kind), operation->label, name(),
                      plain(error.what())))));
      return;
    }
    if (!work) {  // an exchange of nothing
      operation->finish();
      return;
    }
    operation->detached = operation->kind != Kind::barrier;
    operation->waiter = [work] { work->wait(); };
    operation->poll = [work] { return work->isCompleted(); };
    world_->watch->add(operation, *this);
  }

  Work start(Operation& operation) {
    const auto op = operation.reduce == Reduce::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    std::vector<at::Tensor> outputs = {operation.output}, inputs = {operation.input};
    switch (operation.kind) {
      case Kind::all_reduce: {
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        return group_->allreduce(outputs, options);
      }
      case Kind::all_gather: {
        if (equal(operation.offsets)) return group_->_allgather_base(operation.output, operation.input);
        std::vector<std::vector<at::Tensor>> parts = {parts_of(operation.output, operation.offsets)};
        return group_->allgather(parts, inputs);
      }
      case Kind::reduce_scatter: {
        c10d::ReduceScatterOptions options;
        options.reduceOp = op;
        if (equal(operation.offsets))
          return group_->_reduce_scatter_base(operation.output, operation.input, options);
        std::vector<std::vector<at::Tensor>> parts = {parts_of(operation.input, operation.offsets)};
        return group_->reduce_scatter(outputs, parts, options);
      }
      case Kind::broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = operation.root;
        return group_->broadcast(outputs, options);
      }
      case Kind::barrier: return group_->barrier();
      case Kind::exchange: {
        if (operation.sends.empty() && operation.receives.empty()) return {};
        group_->startCoalescing();
        for (auto& [peer, tensor] : operation.receives) {
          std::vector<at::Tensor> tensors = {tensor};
          group_->recv(tensors, peer, 0);
        }
        for (auto& [peer, tensor] : operation.sends) {
          std::vector<at::Tensor> tensors = {tensor};
          group_->send(tensors, peer, 0);
        }
        return group_->endCoalescing();
      }
    }
    SAUROPOD_CHECK(false, "unknown kind of call");
  }

  static bool equal(const std::vector<int64_t>& offsets) {
    for (size_t i = 1; i < offsets.size(); ++i)
      if (offsets[i] - offsets[i - 1] != offsets[1]) return false;
    return true;
  }

  std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<int64_t>& offsets) const {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) parts.push_back(whole.view({-1}).slice(0, offsets[i], offsets[i + 1]));
    return parts;
  }

  std::shared_ptr<World::State> world_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  int listener_ = 0;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Communicator> make_nccl_group(std::shared_ptr<World::State> world, std::string name, int rank,
                                              std::vector<int> ranks, std::chrono::milliseconds timeout, int number) {
  return std::make_unique<NcclGroup>(std::move(world), std::move(name), rank, std::move(ranks), timeout, number);
}

}  // namespace sauropod::comm

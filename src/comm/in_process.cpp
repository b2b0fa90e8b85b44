#include "comm/in_process.h"

#include <utility>

#include "comm/operation.h"

namespace sauropod::comm {
namespace {

class Single : public Communicator {
 public:
  Single(std::string name, int world_rank, std::chrono::milliseconds timeout,
         std::shared_ptr<FlightRecorder> recorder)
      : Communicator(std::move(name), 0, {world_rank}, timeout, std::move(recorder)) {}
  std::string_view backend() const override { return "single"; }

 private:
  void issue(const std::shared_ptr<Operation>& operation) override {
    operation->started();
    const at::Tensor& from = operation->input;
    if (from.defined() && from.numel() > 0 && from.data_ptr() != operation->output.data_ptr())
      operation->output.view({-1}).copy_(from.view({-1}));
    operation->finish();
  }
};

class Fake : public Communicator {
 public:
  Fake(std::string name, int rank, std::vector<int> ranks, std::shared_ptr<FakeLog> log)
      : Communicator(std::move(name), rank, std::move(ranks), std::chrono::milliseconds(0), nullptr),
        log_(std::move(log)) {}
  std::string_view backend() const override { return "fake"; }

 private:
  void issue(const std::shared_ptr<Operation>& operation) override {
    operation->started();
    {
      std::lock_guard lock(log_->mutex);
      log_->calls.push_back({name(), size(), operation->label, operation->kind, operation->bytes});
    }
    operation->finish();
  }

  std::shared_ptr<FakeLog> log_;
};

}  // namespace

std::unique_ptr<Communicator> make_single(std::string name, int world_rank,
                                          std::chrono::milliseconds timeout,
                                          std::shared_ptr<FlightRecorder> recorder) {
  return std::make_unique<Single>(std::move(name), world_rank, timeout, std::move(recorder));
}

std::unique_ptr<Communicator> make_fake(std::string name, int rank, std::vector<int> ranks,
                                        std::shared_ptr<FakeLog> log) {
  return std::make_unique<Fake>(std::move(name), rank, std::move(ranks), std::move(log));
}

}  // namespace sauropod::comm

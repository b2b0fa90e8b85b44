#include "parallel/pipeline.h"

#include "base/error.h"

namespace sauropod::parallel {

Mail::Mail(comm::Communicator& pipeline, int64_t chunks, int64_t microbatches,
           std::function<at::Tensor(int64_t)> make)
    : pipeline_(pipeline), make_(std::move(make)) {
  for (int peer = 0; peer < pipeline.size(); ++peer) {
    expected_.emplace_back();
    if (peer == pipeline.rank()) continue;
    const auto all = messages(pipeline.size(), chunks, microbatches, peer, pipeline.rank());
    expected_.back().assign(all.begin(), all.end());
  }
}

int64_t Mail::receiver(const Action& made_by) const {
  return stage_of(made_by.chunk + (made_by.forward ? 1 : -1));
}

void Mail::send(const Action& made_by, at::Tensor tensor) {
  while (!leaving_.empty() && leaving_.front().handle.done()) {
    leaving_.front().handle.wait();
    leaving_.pop_front();
  }
  const auto to = static_cast<int>(receiver(made_by));
  comm::Handle handle =
      pipeline_.exchange(made_by.forward ? "activations" : "gradients of activations",
                         {{to, tensor}}, {});
  leaving_.push_back({std::move(tensor), std::move(handle)});
}

void Mail::expect(const Action& made_by) {
  if (arriving_.contains(key(made_by))) return;
  const int64_t from = stage_of(made_by.chunk);
  auto& expected = expected_[static_cast<size_t>(from)];
  while (!arriving_.contains(key(made_by))) {
    SAUROPOD_CHECK(!expected.empty(), "a message that the schedule does not have");
    const Action next = expected.front();
    expected.pop_front();
    const at::Tensor tensor = make_(next.microbatch);
    comm::Handle handle =
        pipeline_.exchange(next.forward ? "activations" : "gradients of activations", {},
                           {{static_cast<int>(from), tensor}});
    arriving_[key(next)] = {tensor, std::move(handle)};
  }
}

at::Tensor Mail::receive(const Action& made_by) {
  expect(made_by);
  const auto found = arriving_.find(key(made_by));
  found->second.handle.wait();
  at::Tensor tensor = std::move(found->second.tensor);
  arriving_.erase(found);
  return tensor;
}

void Mail::finish() {
  for (Arriving& one : leaving_) one.handle.wait();
  leaving_.clear();
}

}  // namespace sauropod::parallel

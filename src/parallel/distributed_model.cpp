#include "parallel/distributed_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "base/error.h"
#include "parallel/pipeline.h"
#include "parallel/schedule.h"

namespace sauropod::parallel {

struct DistributedModel::Pass {
  at::Tensor input;   // a leaf; undefined in the first chunk
  at::Tensor output;  // to be sent on; in the last chunk the loss
  at::Tensor nats;    // of the last chunk
};

Sequences sequences_of(int64_t batch, int ranks, int rank) {
  const int64_t first = batch * rank / ranks;
  return {first, batch * (rank + 1) / ranks - first};
}

DistributedModel::DistributedModel(const model::ModelOptions& options,
                                   const ParallelOptions& parallel, Placement placement,
                                   model::Precision precision, at::Device device,
                                   model::Recompute recompute, const comm::Mesh& mesh)
    : mesh_(mesh),
      options_(options),
      parallel_(parallel),
      placement_(std::move(placement)),
      memory_(placement_.table, precision, device, /*gradients=*/true) {
  if (mesh.tensor().size() > 1)
    boundary_.emplace(mesh.tensor(), parallel.sequence, placement_.first_item, options.vocabulary);
  for (const model::Span& span : placement_.spans)
    chunks_.emplace_back(options_, memory_, recompute, span, boundary_ ? &*boundary_ : nullptr);
}

DistributedModel::Pass DistributedModel::forward(size_t chunk, const model::Batch& batch,
                                                 const at::Tensor& input,
                                                 const ops::CrossEntropyOptions& loss,
                                                 const model::LayerHooks& hooks) {
  const model::Transformer& model = chunks_[chunk];
  const auto begins = [&](int64_t layer) {
    if (hooks.begins) hooks.begins(layer);
  };
  Pass pass;
  model::BlockState state;
  if (model.span().embedding) {
    begins(-1);
    state = model.embed(batch);
  } else {
    pass.input = input;
    if (loss.gradients) pass.input.requires_grad_(true);
    state.residual = pass.input;
  }
  state = model.blocks(batch, std::move(state), hooks);
  if (!model.span().head) {
    pass.output = state.residual.add(state.delta);
    return pass;
  }
  begins(options_.layers);
  const ops::CrossEntropy result =
      model.loss(model.normalize(state), batch.targets.reshape({-1}), loss);
  pass.output = result.loss;
  pass.nats = result.nats;
  return pass;
}

at::Tensor DistributedModel::message(const model::Batch& batch) const {
  const int64_t tokens = batch.tokens.numel() / (parallel_.sequence ? parallel_.tensor : 1);
  return at::empty({tokens, options_.hidden}, memory_.weights().options());
}

double DistributedModel::forward_backward(int64_t microbatches, const BatchOf& batch_of,
                                          const ops::CrossEntropyOptions& loss,
                                          const model::LayerHooks& hooks) {
  const auto stages = static_cast<int64_t>(mesh_.layout().pipeline);
  const auto chunks = static_cast<int64_t>(chunks_.size());
  std::vector<std::optional<model::Batch>> batches(static_cast<size_t>(microbatches));
  const auto batch = [&](int64_t microbatch) -> const model::Batch& {
    auto& place = batches[static_cast<size_t>(microbatch)];
    if (!place) place = batch_of(microbatch);
    return *place;
  };
  Mail mail(mesh_.pipeline(), chunks, microbatches,
            [&](int64_t microbatch) { return message(batch(microbatch)); });
  // The action of a neighbour whose message an action needs, or nothing.
  const auto needed = [&](const Action& action) -> std::optional<Action> {
    const int64_t from = action.chunk + (action.forward ? -1 : 1);
    if (from < 0 || from >= stages * chunks) return std::nullopt;
    return Action{action.forward, from, action.microbatch};
  };

  std::map<std::pair<int64_t, int64_t>, Pass> passes;
  double sum = 0;
  const std::vector<Action> order =
      schedule(stages, mesh_.coordinates().pipeline, chunks, microbatches);
  for (size_t i = 0; i < order.size(); ++i) {
    const Action& action = order[i];
    const auto from = needed(action);
    at::Tensor arrived = from ? mail.receive(*from) : at::Tensor();
    // The next message may come while this action computes.
    if (i + 1 < order.size())
      if (const auto next = needed(order[i + 1])) mail.expect(*next);
    const std::pair<int64_t, int64_t> key{action.chunk, action.microbatch};
    const auto chunk = static_cast<size_t>(action.chunk / stages);
    if (action.forward) {
      const bool last = action.microbatch + 1 == microbatches;
      Pass pass = forward(chunk, batch(action.microbatch), arrived, loss,
                          last ? hooks : model::LayerHooks{hooks.begins, {}});
      if (pass.nats.defined()) {
        if (!pass.nats.is_meta()) sum += pass.nats.sum(at::kDouble).item<double>() * loss.scale;
      } else {
        mail.send(action, pass.output.detach());
      }
      passes.emplace(key, std::move(pass));
      continue;
    }
    Pass pass = std::move(passes.at(key));
    passes.erase(key);
    // The root of the last chunk is the loss, whose gradient is 1.
    torch::autograd::backward({pass.output}, {arrived});
    pass.output.reset();
    if (pass.input.defined()) {
      mail.send(action, pass.input.grad().contiguous());
      pass.input.mutable_grad().reset();
    }
  }
  mail.finish();
  return sum;
}

at::Tensor DistributedModel::nats(const model::Batch& batch) {
  const at::NoGradGuard no_grad;
  ops::CrossEntropyOptions options;
  options.gradients = false;
  const auto stages = static_cast<int64_t>(mesh_.layout().pipeline);
  const auto chunks = static_cast<int64_t>(chunks_.size());
  comm::Communicator& pipeline = mesh_.pipeline();
  at::Tensor result;
  for (int64_t chunk = 0; chunk < stages * chunks; ++chunk) {
    if (chunk % stages != pipeline.rank()) continue;
    at::Tensor input;
    if (chunk > 0) {
      input = message(batch);
      if (stages > 1)
        pipeline
            .exchange("activations of evaluation", {},
                      {{static_cast<int>((chunk - 1) % stages), input}})
            .wait();
    }
    Pass pass = forward(static_cast<size_t>(chunk / stages), batch, input, options, {});
    result = pass.nats;
    if (!result.defined())
      pipeline
          .exchange("activations of evaluation", {{static_cast<int>((chunk + 1) % stages), pass.output}},
                    {})
          .wait();
  }
  if (stages == 1) return result;
  if (!result.defined())
    result = at::empty({batch.tokens.numel()},
                       memory_.weights().options().dtype(memory_.master_type()));
  pipeline.broadcast("losses of evaluation", result, static_cast<int>((stages * chunks - 1) % stages))
      .wait();
  return result;
}

}  // namespace sauropod::parallel

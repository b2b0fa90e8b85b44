// Trains a tiny model under a layout beside the same model on one rank, and says how far they are apart.
// Both run in every process of the layout.
#pragma once

#include <ATen/ops/empty.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "base/random.h"
#include "comm/mesh.h"
#include "parallel/distributed_model.h"
#include "parallel/optimizer.h"

namespace sauropod::parallel::test {

// So small that rounding stays rounding: at 0.01 the tiny llama's steps are chaotic, and 10⁻¹⁶ grows to 10⁻⁸ within 20
// of them under any order of sums.
constexpr double kLearningRate = 0.002;

struct Case {
  ParallelOptions parallel;
  std::string family = "jurassic";
  bool tied = true;
  model::Precision precision = model::Precision::fp64;
  model::Recompute recompute = model::Recompute::none;
  bool documents = false;
  int64_t micro_batch = 1;
  std::vector<int64_t> batches{4};  // sequences of the steps, repeated
  int64_t steps = 3;
};

inline std::string describe(const Case& c, int world) {
  const auto& p = c.parallel;
  return fmt::format("{} ranks {}: tensor {} sequence {} pipeline {} virtual {} layers [{}] zero {}, "
                     "tied {} {} recompute {} documents {} micro-batch {} batches [{}]",
                     world, c.family, p.tensor, p.sequence, p.pipeline, p.virtual_stages,
                     fmt::join(p.stage_layers, ","), p.zero, c.tied,
                     model::precision_name(c.precision), static_cast<int>(c.recompute), c.documents,
                     c.micro_batch, fmt::join(c.batches, ","));
}

inline model::ModelOptions tiny_model(const Case& c) {
  model::ModelOptions m;
  m.family = c.family;
  m.layers = 8;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = c.family == "llama" ? 4 : 0;
  m.mlp_hidden = 32;
  m.context = 8;
  m.vocabulary = 37;  // not a multiple of any tensor size
  m.tied_embeddings = c.tied;
  m.resolve(0);
  return m;
}

inline model::Batch batch_of(const Case& c, const model::ModelOptions& m, int64_t first, int64_t count) {
  model::Batch batch;
  batch.tokens = at::empty({count, m.context}, at::kInt);
  batch.targets = at::empty({count, m.context}, at::kInt);
  if (c.documents) batch.first = at::empty({count, m.context}, at::kInt);
  for (int64_t s = 0; s < count; ++s)
    for (int64_t t = 0; t < m.context; ++t) {
      const auto random = [&](uint64_t key) {
        return static_cast<int32_t>(
            base::random_bits(key, static_cast<uint64_t>((first + s) * m.context + t)) %
            static_cast<uint64_t>(m.vocabulary));
      };
      const int64_t at = s * m.context + t;
      batch.tokens.data_ptr<int32_t>()[at] = random(1);
      batch.targets.data_ptr<int32_t>()[at] = random(3) == 0 ? -1 : random(2);
      if (c.documents) batch.first.data_ptr<int32_t>()[at] = t < 3 ? 0 : 3;
    }
  return batch;
}

// What a test may spoil, to see that the comparison notices.
struct Faults {
  std::function<void(Placement&, const comm::Mesh&)> placement;
  std::function<void(ops::CrossEntropyOptions&, const comm::Mesh&)> loss;
  std::function<Sequences(int64_t batch, const comm::Mesh&)> share;
};

class Trainee {
 public:
  Trainee(const Case& c, const ParallelOptions& parallel, comm::World& world, const Faults& faults)
      : case_(c),
        faults_(faults),
        options_(tiny_model(c)),
        mesh_(world, {static_cast<int>(parallel.tensor), static_cast<int>(parallel.pipeline), false}),
        model_(options_, parallel, placement(parallel), c.precision, at::kCPU, c.recompute, mesh_),
        optimizer_(model_.memory(), model_.placement().held, mesh_, parallel.zero,
                   {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .clip = 0.5},
                   /*bucket_elements=*/3000) {
    model_.memory().initialize(7);
  }

  // Backward pass of step `step` and the sums; returns the loss of the whole batch.
  double backward(int64_t step, int64_t first) {
    const int64_t batch = case_.batches[static_cast<size_t>(step) % case_.batches.size()];
    const Sequences mine = faults_.share
                               ? faults_.share(batch, mesh_)
                               : sequences_of(batch, mesh_.data().size(), mesh_.data().rank());
    ops::CrossEntropyOptions loss;
    loss.scale = 1.0 / static_cast<double>(batch * options_.context);
    loss.z_loss = 1e-3;
    if (faults_.loss) faults_.loss(loss, mesh_);
    const int64_t microbatches = (mine.count + case_.micro_batch - 1) / case_.micro_batch;
    double sum = model_.forward_backward(
        microbatches,
        [&](int64_t microbatch) {
          const int64_t begin = microbatch * case_.micro_batch;
          return batch_of(case_, options_, first + mine.first + begin,
                          std::min(case_.micro_batch, mine.count - begin));
        },
        loss, optimizer_.hooks());
    if (mesh_.coordinates().tensor > 0) sum = 0;
    const at::Tensor all = at::empty({1}, at::kDouble);
    all.data_ptr<double>()[0] = sum;
    mesh_.world().all_reduce("loss", all).wait();
    optimizer_.reduce_gradients();
    return all.item<double>();
  }

  const comm::Mesh& mesh() const { return mesh_; }
  DistributedModel& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }

 private:
  Placement placement(const ParallelOptions& parallel) {
    Placement placement = place(options_, parallel, mesh_.layout(), mesh_.coordinates());
    if (faults_.placement) faults_.placement(placement, mesh_);
    return placement;
  }

  Case case_;
  Faults faults_;
  model::ModelOptions options_;
  comm::Mesh mesh_;
  DistributedModel model_;
  Optimizer optimizer_;
};

// What a part of a parameter is in the whole one.
inline at::Tensor part_of_whole(const at::Tensor& whole, const model::Parameter& part) {
  at::Tensor view = whole;
  const auto begin = part.begin();
  for (size_t d = 0; d < begin.size(); ++d)
    view = view.narrow(static_cast<int64_t>(d), begin[d], part.shape[d]);
  return view;
}

struct Distance {
  double gradient = 0, loss = 0, norm = 0, weights = 0;
  std::string where;  // the parameter of the largest gradient or weight distance
};

// ‖a − b‖ / ‖b‖ over what this rank has of each parameter; the key bias, whose true gradient is 0, is
// judged by the query bias's.
inline void compare(Trainee& trainee, Trainee& reference, bool gradients, double& worst, std::string& where) {
  const auto& memory = trainee.model().memory();
  const auto& whole = reference.model().memory();
  const auto flat = [&](const model::ParameterMemory& m) { return gradients ? m.gradients() : m.weights(); };
  const auto index_of = [&](const std::string& name) {
    for (size_t i = 0; i < whole.table().size(); ++i)
      if (whole.table()[i].name == name) return i;
    base::fail("no parameter {}", name);
  };
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const model::Parameter& part = memory.table()[i];
    at::Tensor expected = at::empty({memory.flat_size()}, flat(memory).options()).fill_(0);
    at::Tensor got = expected.clone();
    memory.view(expected, i).copy_(part_of_whole(whole.view(flat(whole), index_of(part.name)), part));
    memory.view(got, i).copy_(memory.view(flat(memory), i));
    double difference = 0, size = 0;
    const auto add = [&](int64_t begin, int64_t end) {
      const at::Tensor b = expected.narrow(0, begin, end - begin).to(at::kDouble);
      difference += got.narrow(0, begin, end - begin).to(at::kDouble).sub(b).square().sum().item<double>();
    };
    if (gradients) {
      for (const Piece& piece : trainee.optimizer().pieces()) add(piece.begin, piece.end);
    } else {
      add(0, memory.flat_size());
    }
    std::string judge = part.name;
    if (const auto at = judge.find("key.bias"); at != std::string::npos) judge.replace(at, 3, "query");
    size = whole.view(flat(whole), index_of(judge)).to(at::kDouble).square().sum().item<double>();
    const double relative = size == 0 ? (difference == 0 ? 0 : 1e9) : std::sqrt(difference / size);
    if (!(relative <= worst)) {
      worst = relative;
      where = part.name;
    }
  }
}

// Trains both and gives the largest distance of what this rank sees.
inline Distance distance(const Case& c, comm::World& world, const Faults& faults = {}) {
  auto alone = comm::World::start(comm::LaunchEnvironment{}, {});
  ParallelOptions one;
  Case whole = c;
  Trainee reference(whole, one, *alone, {}), trainee(c, c.parallel, world, faults);
  Distance worst;
  int64_t first = 0;
  const auto relative = [](double a, double b) { return std::isfinite(a) ? std::abs(a - b) / std::abs(b) : 1e9; };
  for (int64_t step = 0; step < c.steps; ++step) {
    const double loss = trainee.backward(step, first), expected_loss = reference.backward(step, first);
    worst.loss = std::max(worst.loss, relative(loss, expected_loss));
    if (step == 0) compare(trainee, reference, true, worst.gradient, worst.where);
    const double norm = trainee.optimizer().gradient_norm(), expected = reference.optimizer().gradient_norm();
    worst.norm = std::max(worst.norm, relative(norm, expected));
    trainee.optimizer().update(kLearningRate, norm);
    reference.optimizer().update(kLearningRate, expected);
    first += c.batches[static_cast<size_t>(step) % c.batches.size()];
  }
  trainee.optimizer().wait_for_weights();
  compare(trainee, reference, false, worst.weights, worst.where);
  return worst;
}

}  // namespace sauropod::parallel::test

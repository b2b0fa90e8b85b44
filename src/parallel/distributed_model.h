// A model that the ranks of a mesh hold together, and its passes. One rank is a mesh of one: there is no
// other way to train.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "model/transformer.h"
#include "parallel/options.h"
#include "parallel/placement.h"
#include "parallel/tensor_boundary.h"

namespace sauropod::parallel {

using BatchOf = std::function<model::Batch(int64_t microbatch)>;

// The sequences [first, first + count) of a batch that a data-parallel rank takes: consecutive and as equal
// as they can be; none where there are more ranks than sequences.
struct Sequences {
  int64_t first = 0, count = 0;
};
Sequences sequences_of(int64_t batch, int ranks, int rank);

// Not thread-safe. All ranks of the mesh make the same calls. The mesh outlives the model.
class DistributedModel {
 public:
  // options: resolved and checked (check_layout). placement: of this rank of the mesh. Memory is not
  // initialised. The mesh may be of a fake world, on the meta device.
  DistributedModel(const model::ModelOptions& options, const ParallelOptions& parallel,
                   Placement placement, model::Precision precision, at::Device device,
                   model::Recompute recompute, const comm::Mesh& mesh);

  // Forward and backward passes of this data-parallel rank's microbatches, in the order of the schedule;
  // gradients are added to. Returns loss.scale · Σ nats of them on the last stage and 0 on the others.
  // hooks.begins hears of each layer of this rank in every forward pass, hooks.done in the last microbatch's
  // backward pass, where there is one.
  double forward_backward(int64_t microbatches, const BatchOf& batch_of,
                          const ops::CrossEntropyOptions& loss, const model::LayerHooks& hooks = {});
  // −ln p of every target of a batch [tokens], float, without gradients; on every rank of the tensor and
  // pipeline groups.
  at::Tensor nats(const model::Batch& batch);

  model::ParameterMemory& memory() { return memory_; }
  const model::ParameterMemory& memory() const { return memory_; }
  const Placement& placement() const { return placement_; }
  at::Device device() const { return memory_.device(); }

 private:
  struct Pass;  // what a chunk's forward pass leaves for its backward pass
  Pass forward(size_t chunk, const model::Batch& batch, const at::Tensor& input,
               const ops::CrossEntropyOptions& loss, const model::LayerHooks& hooks);
  // Memory for what stages send each other: [tokens of this rank, hidden].
  at::Tensor message(const model::Batch& batch) const;

  const comm::Mesh& mesh_;
  model::ModelOptions options_;
  ParallelOptions parallel_;
  Placement placement_;
  model::ParameterMemory memory_;
  std::optional<TensorBoundary> boundary_;
  std::vector<model::Transformer> chunks_;
};

}  // namespace sauropod::parallel

// AdamW over the flat buffers of a model that ranks may share: the sums of gradients over them, clipping
// by the global norm, weight decay where the parameter table says so, and ZeRO-1.
#pragma once

#include <deque>
#include <set>
#include <vector>

#include "comm/mesh.h"
#include "model/parameter_memory.h"
#include "model/transformer.h"
#include "parallel/shards.h"

namespace sauropod::parallel {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // 0: not clipped
};

// Not thread-safe. What it is given outlives it; `memory` has gradients. With a mesh all of its ranks make
// the same calls.
class Optimizer {
 public:
  // A process by itself.
  Optimizer(model::ParameterMemory& memory, const AdamOptions& options);
  // bucket_elements: of the gradients that are reduced at a time.
  Optimizer(model::ParameterMemory& memory, const std::vector<Held>& held, const comm::Mesh& mesh,
            bool zero, const AdamOptions& options, int64_t bucket_elements = int64_t{16} << 20);

  // During the last backward pass of a step: nothing will be added any more to the gradients of this layer,
  // nor of the layers after it on this rank. Buckets that are complete are reduced in the background.
  void layer_done(int64_t layer);
  // After it: makes the gradients the sums over all ranks, of what each rank will update.
  void reduce_gradients();
  // The norm over all gradients of the model, each parameter once, on every rank.
  double gradient_norm();
  // One update at `rate`, with the gradients scaled down to the clipping norm, and the gradients set
  // to zero. Adam's t counts the updates made, not the steps skipped. Under ZeRO it ends while the ranks
  // still send each other the new weights, in the order of the layers: until need() or wait_for_weights(),
  // only this rank's share may be read and nothing written.
  void update(double rate, double gradient_norm);
  // Before the weights of a layer are read, as model::LayerHooks.begins says: waits for those of it and of
  // the layers before it.
  void need(int64_t layer);
  void wait_for_weights();
  // Both, for forward_backward().
  model::LayerHooks hooks();
  void zero_gradients();

  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  // The moments of this rank's share, piece after piece.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // What this rank writes of a checkpoint: shares of the pieces, where several ranks have the same ones.
  std::vector<Piece> saved_pieces() const;
  const at::Tensor& moment1() const { return moment1_; }
  const at::Tensor& moment2() const { return moment2_; }
  // Buckets whose new weights are still on their way to this rank.
  size_t gathering() const { return gathers_.size(); }

 private:
  bool complete(const Bucket& bucket) const;
  void start_reducing(const Bucket& bucket);
  void sum_partial(const Bucket& bucket);
  void sum_tied();
  void start_gathering(const Bucket& bucket);
  // Whether a bucket holds weights of this layer or of one before it.
  bool holds_up_to(const Bucket& bucket, int64_t layer) const;

  model::ParameterMemory& memory_;
  const std::vector<Held> held_;
  const comm::Mesh* mesh_ = nullptr;
  bool zero_ = false;
  AdamOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<Piece> pieces_;
  // Runs of the pieces that count in the norm.
  std::vector<Piece> counted_;
  at::Tensor moment1_, moment2_;
  int64_t updates_ = 0;
  // Of the step in progress: the layers that are done, and the buckets that are being reduced, which are the
  // last `reducing_` ones: every rank takes them from the end, so that all make the same calls in one order.
  std::set<int64_t> done_;
  size_t reducing_ = 0;
  std::vector<comm::Handle> handles_;
  // Of the step before: the buckets whose weights are being gathered, which are the last ones.
  std::deque<comm::Handle> gathers_;
};

}  // namespace sauropod::parallel

#include "parallel/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/adamw.h"

namespace sauropod::parallel {
namespace {

// The parts of `pieces` in [begin, end) are appended to `runs`, joined to the last one where they go on.
void append(std::vector<Piece>& runs, const std::vector<Piece>& pieces, int64_t begin, int64_t end) {
  for (const Piece& piece : pieces) {
    const int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
    if (from >= to) continue;
    const int64_t state = piece.state + from - piece.begin;
    if (!runs.empty() && runs.back().end == from && runs.back().state + runs.back().size() == state) {
      runs.back().end = to;
    } else {
      runs.push_back({from, to, state});
    }
  }
}

}  // namespace

Optimizer::Optimizer(model::ParameterMemory& memory, const AdamOptions& options)
    : memory_(memory), held_(memory.table().size()), options_(options) {
  SAUROPOD_CHECK(memory.gradients().defined());
  pieces_ = counted_ = {{0, memory.flat_size(), 0}};
  memory.keep_lower_halves(pieces_);
  moment1_ = at::zeros({memory.flat_size()}, memory.gradients().options());
  moment2_ = at::zeros({memory.flat_size()}, memory.gradients().options());
}

Optimizer::Optimizer(model::ParameterMemory& memory, const std::vector<Held>& held,
                     const comm::Mesh& mesh, bool zero, const AdamOptions& options,
                     int64_t bucket_elements)
    : memory_(memory), held_(held), mesh_(&mesh), options_(options) {
  SAUROPOD_CHECK(memory.gradients().defined() && held.size() == memory.table().size());
  zero_ = zero && mesh.data().size() > 1;
  buckets_ = make_buckets(memory, held_, bucket_elements);
  pieces_ = zero_ ? pieces_of(buckets_, mesh.data().size(), mesh.data().rank())
                  : pieces_of(buckets_, 1, 0);
  memory.keep_lower_halves(pieces_);
  int64_t state = 0;
  for (const Piece& piece : pieces_) state += piece.size();
  moment1_ = at::zeros({state}, memory.gradients().options());
  moment2_ = at::zeros({state}, memory.gradients().options());
  // Without ZeRO every data-parallel rank has all sums: the first counts them.
  if (!zero_ && mesh.data().rank() > 0) return;
  for (size_t i = 0; i < held_.size(); ++i) {
    // Gaps between parameters are 0 and may be counted, which joins the runs.
    const int64_t end = i + 1 < held_.size() ? memory.offset(i + 1) : memory.flat_size();
    if (held_[i].counted) append(counted_, pieces_, memory.offset(i), end);
  }
}

std::vector<Piece> Optimizer::saved_pieces() const {
  if (zero_ || mesh_ == nullptr || mesh_->data().size() == 1) return pieces_;
  std::vector<Piece> shares = pieces_of(buckets_, mesh_->data().size(), mesh_->data().rank());
  for (Piece& share : shares) share.state = share.begin;  // the state is that of everything
  return shares;
}

bool Optimizer::complete(const Bucket& bucket) const {
  // The embeddings (layer −1) come last in a backward pass; what stands behind the last layer comes first.
  const int64_t last = done_.empty() ? -1 : *done_.rbegin();
  for (size_t i = 0; i < held_.size(); ++i) {
    if (memory_.offset(i) < bucket.begin || memory_.offset(i) >= bucket.end) continue;
    const int64_t layer = memory_.table()[i].layer;
    if (layer < 0 || (layer <= last && !done_.contains(layer))) return false;
  }
  return true;
}

void Optimizer::layer_done(int64_t layer) {
  if (mesh_ == nullptr || mesh_->world().size() == 1) return;
  SAUROPOD_CHECK(gathers_.empty() || !holds_up_to(buckets_[buckets_.size() - gathers_.size()], layer),
                 "layer {} went through a pass with weights of the step before", layer);
  done_.insert(layer);
  while (reducing_ < buckets_.size()) {
    const Bucket& next = buckets_[buckets_.size() - 1 - reducing_];
    if (!complete(next)) return;
    start_reducing(next);
  }
}

void Optimizer::sum_partial(const Bucket& bucket) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < held_.size(); ++i)
    if (held_[i].partial && memory_.offset(i) >= bucket.begin && memory_.offset(i) < bucket.end)
      parts.push_back(memory_.view(memory_.gradients(), i).view({-1}));
  if (parts.empty()) return;
  // Small and many: one message.
  const at::Tensor together = at::cat(parts);
  mesh_->tensor().all_reduce("gradients of shared parameters", together).wait();
  int64_t at = 0;
  for (at::Tensor& part : parts) {
    part.copy_(together.narrow(0, at, part.numel()));
    at += part.numel();
  }
}

void Optimizer::start_reducing(const Bucket& bucket) {
  const at::NoGradGuard no_grad;
  ++reducing_;
  sum_partial(bucket);
  comm::Communicator& data = mesh_->data();
  if (data.size() == 1) return;
  const at::Tensor gradients = memory_.gradients().narrow(0, bucket.begin, bucket.size());
  if (!zero_) {
    handles_.push_back(data.all_reduce("gradients", gradients));
    return;
  }
  const std::vector<int64_t> offsets = share_offsets(bucket, data.size());
  const auto at = static_cast<size_t>(data.rank());
  const at::Tensor own = gradients.narrow(0, offsets[at], offsets[at + 1] - offsets[at]);
  handles_.push_back(data.reduce_scatter("gradients", gradients, own, offsets));
}

void Optimizer::sum_tied() {
  if (mesh_->embedding() == nullptr || mesh_->embedding()->size() == 1) return;
  for (const Bucket& bucket : buckets_) {
    if (!bucket.tied) continue;
    std::vector<Piece> runs;
    append(runs, pieces_, bucket.begin, bucket.end);
    for (const Piece& run : runs)
      mesh_->embedding()
          ->all_reduce("gradients of the tied embedding",
                       memory_.gradients().narrow(0, run.begin, run.size()))
          .wait();
  }
}

void Optimizer::reduce_gradients() {
  if (mesh_ == nullptr) return;
  wait_for_weights();  // a rank without sequences had no pass that needed them
  const at::NoGradGuard no_grad;
  while (reducing_ < buckets_.size()) start_reducing(buckets_[buckets_.size() - 1 - reducing_]);
  for (comm::Handle& handle : handles_) handle.wait();
  handles_.clear();
  done_.clear();
  reducing_ = 0;
  sum_tied();
}

double Optimizer::gradient_norm() {
  double sum = 0;
  for (const Piece& run : counted_)
    sum += ops::sum_of_squares(memory_.gradients().narrow(0, run.begin, run.size()));
  if (mesh_ != nullptr && mesh_->world().size() > 1) {
    const at::Tensor all = at::full({1}, sum, at::TensorOptions().dtype(at::kDouble).device(memory_.device()));
    mesh_->world().all_reduce("gradient norm", all).wait();
    if (!all.is_meta()) sum = all.item<double>();
  }
  return std::sqrt(sum);
}

void Optimizer::update(double rate, double gradient_norm) {
  ++updates_;
  ops::AdamW step;
  step.rate = rate;
  step.beta1 = options_.beta1;
  step.beta2 = options_.beta2;
  step.epsilon = options_.epsilon;
  step.correction1 = 1 - std::pow(options_.beta1, static_cast<double>(updates_));
  step.correction2 = 1 - std::pow(options_.beta2, static_cast<double>(updates_));
  if (options_.clip > 0 && gradient_norm > options_.clip)
    step.gradient_scale = options_.clip / gradient_norm;
  size_t updated = 0;  // buckets
  for (const auto& range : memory_.ranges()) {
    step.decay = range.decay ? options_.weight_decay : 0;
    std::vector<Piece> runs;
    append(runs, pieces_, range.begin, range.end);
    for (const Piece& run : runs) {
      const auto state = [&](const at::Tensor& x) {
        return x.defined() ? x.narrow(0, run.state, run.size()) : x;
      };
      ops::adamw(step, 0, run.size(),
                 {memory_.gradients().narrow(0, run.begin, run.size()),
                  memory_.weights().narrow(0, run.begin, run.size()), state(memory_.low()),
                  state(moment1_), state(moment2_)});
    }
    // The first layers' weights travel while the others' are being updated.
    if (zero_)
      while (updated < buckets_.size() && buckets_[updated].end <= range.end)
        start_gathering(buckets_[updated++]);
  }
  if (!zero_) return;
  SAUROPOD_CHECK(updated == buckets_.size());
  zero_gradients();  // those of other ranks' shares
}

void Optimizer::start_gathering(const Bucket& bucket) {
  const at::NoGradGuard no_grad;
  comm::Communicator& data = mesh_->data();
  const at::Tensor weights = memory_.weights().narrow(0, bucket.begin, bucket.size());
  const std::vector<int64_t> offsets = share_offsets(bucket, data.size());
  const auto at = static_cast<size_t>(data.rank());
  const at::Tensor own = weights.narrow(0, offsets[at], offsets[at + 1] - offsets[at]);
  gathers_.push_back(data.all_gather("weights", own, weights, offsets));
}

bool Optimizer::holds_up_to(const Bucket& bucket, int64_t layer) const {
  for (size_t i = 0; i < held_.size(); ++i)
    if (memory_.offset(i) >= bucket.begin && memory_.offset(i) < bucket.end &&
        memory_.table()[i].layer <= layer)
      return true;
  return false;
}

void Optimizer::need(int64_t layer) {
  if (gathers_.empty()) return;
  size_t needed = buckets_.size();  // the first buckets
  while (needed > 0 && !holds_up_to(buckets_[needed - 1], layer)) --needed;
  while (buckets_.size() - gathers_.size() < needed) {
    gathers_.front().wait();
    gathers_.pop_front();
  }
}

void Optimizer::wait_for_weights() {
  for (comm::Handle& gather : gathers_) gather.wait();
  gathers_.clear();
}

model::LayerHooks Optimizer::hooks() {
  return {[this](int64_t layer) { need(layer); }, [this](int64_t layer) { layer_done(layer); }};
}

void Optimizer::zero_gradients() {
  const at::NoGradGuard no_grad;
  memory_.gradients().zero_();
}

}  // namespace sauropod::parallel

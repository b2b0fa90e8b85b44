#include "model/parameter_memory.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "ops/adamw.h"

namespace sauropod::model {
namespace {

// 64 bytes of float; bf16 weights then begin at multiples of 32 bytes.
constexpr int64_t kAlignment = 16;

int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

// Elements [first, first + size) of the sequence of numbers that the key stands for.
template <typename T>
void fill_normal(uint64_t key, double deviation, int64_t first, int64_t size, T* out) {
  for (int64_t pair = first / 2; 2 * pair < first + size; ++pair) {
    const auto [even, odd] = base::random_normal_pair(key, static_cast<uint64_t>(pair));
    const int64_t at = 2 * pair - first;
    if (at >= 0) out[at] = static_cast<T>(deviation * even);
    if (at + 1 < size) out[at + 1] = static_cast<T>(deviation * odd);
  }
}

// A parameter's part gets the elements that it has in the whole.
template <typename T>
void fill_normal(const Parameter& parameter, uint64_t seed, T* out) {
  const uint64_t key = base::random_key(seed, parameter.name);
  const std::vector<int64_t> begin = parameter.begin();
  const bool matrix = parameter.shape.size() == 2;
  // Rows of the part, in pieces that are worth a thread's while.
  const int64_t width = parameter.shape.back();
  const int64_t rows = matrix ? parameter.shape[0] : 1;
  const int64_t whole_width = parameter.whole_shape().back();
  constexpr int64_t kPiece = 8192;
  const int64_t pieces_per_row = (width + kPiece - 1) / kPiece;
  const int64_t grain = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, width));
  at::parallel_for(0, rows * pieces_per_row, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / pieces_per_row, column = i % pieces_per_row * kPiece;
      const int64_t whole_row = matrix ? begin[0] + row : 0;
      fill_normal(key, parameter.deviation, whole_row * whole_width + begin.back() + column,
                  std::min(kPiece, width - column), out + row * width + column);
    }
  });
}

}  // namespace

Precision parse_precision(std::string_view name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  if (name == "fp64") return Precision::fp64;
  base::fail_usage("precision '{}' is not known; choose fp32, bf16 or fp64", name);
}

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp64:
      return "fp64";
  }
  return "";
}

ParameterMemory::ParameterMemory(std::vector<Parameter> table, Precision precision,
                                 at::Device device, bool gradients)
    : table_(std::move(table)), precision_(precision) {
  for (size_t i = 0; i < table_.size(); ++i) {
    const Parameter& parameter = table_[i];
    const bool continues = continues_group(i);
    if (!continues) flat_size_ = aligned(flat_size_);
    offsets_.push_back(flat_size_);
    slots_[parameter.name] = {flat_size_, parameter.shape};
    if (!parameter.group.empty()) {
      if (continues) {
        slots_[parameter.group].shape[0] += parameter.shape[0];
      } else {
        slots_[parameter.group] = {flat_size_, parameter.shape};
      }
    }
    if (ranges_.empty() || ranges_.back().decay != parameter.decay)
      ranges_.push_back({flat_size_, 0, parameter.decay});
    flat_size_ += parameter.size();
    ranges_.back().end = flat_size_;
  }
  flat_size_ = aligned(flat_size_);
  // Zeroed, so that the gaps between parameters stay 0 in every sum over the buffer.
  const auto make = [&](at::ScalarType type) {
    return at::zeros({flat_size_}, at::TensorOptions().dtype(type).device(device));
  };
  weights_ = make(precision == Precision::bf16 ? at::kBFloat16 : master_type());
  if (gradients) gradients_ = make(master_type());
}

bool ParameterMemory::continues_group(size_t index) const {
  return index > 0 && !table_[index].group.empty() && table_[index].group == table_[index - 1].group;
}

at::ScalarType ParameterMemory::master_type() const {
  return precision_ == Precision::fp64 ? at::kDouble : at::kFloat;
}

at::Tensor ParameterMemory::view(const at::Tensor& flat, size_t index) const {
  return flat.narrow(0, offsets_[index], table_[index].size()).view(table_[index].shape);
}

ops::Weight ParameterMemory::slot_weight(const Slot& slot) const {
  int64_t size = 1;
  for (const int64_t extent : slot.shape) size *= extent;
  const auto view_of = [&](const at::Tensor& flat) {
    return flat.defined() ? flat.narrow(0, slot.offset, size).view(slot.shape) : flat;
  };
  return {view_of(weights_), view_of(gradients_)};
}

ops::Weight ParameterMemory::weight(std::string_view name) const {
  const auto found = slots_.find(name);
  return found == slots_.end() ? ops::Weight{} : slot_weight(found->second);
}

void ParameterMemory::keep_lower_halves(std::vector<Piece> pieces) {
  if (precision_ != Precision::bf16) return;
  kept_ = std::move(pieces);
  int64_t size = 0;
  for (const Piece& piece : kept_) size += piece.size();
  low_ = at::zeros({size}, weights_.options().dtype(at::kShort));
}

std::vector<Piece> ParameterMemory::kept_in(int64_t begin, int64_t end) const {
  std::vector<Piece> parts;
  for (const Piece& piece : kept_) {
    const int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
    if (from < to) parts.push_back({from, to, piece.state + from - piece.begin});
  }
  return parts;
}

at::Tensor ParameterMemory::copy_master(int64_t begin, int64_t end) const {
  const at::Device host = device().is_meta() ? at::kMeta : at::kCPU;
  const at::Tensor master = weights_.narrow(0, begin, end - begin)
                                .to(host, master_type(), /*non_blocking=*/false, /*copy=*/true);
  for (const Piece& part : kept_in(begin, end))
    ops::join_master(weights_.narrow(0, part.begin, part.size()).to(host),
                     low_.narrow(0, part.state, part.size()).to(host),
                     master.narrow(0, part.begin - begin, part.size()));
  return master;
}

void ParameterMemory::fill_master(size_t index, const std::function<void(void*)>& fill) {
  if (device().is_meta()) return;
  const at::Tensor weights = view(weights_, index);
  if (device().is_cpu() && precision_ != Precision::bf16) {
    fill(weights.data_ptr());
    return;
  }
  // The gradients, of the same type, are the memory where there are any: a copy of the largest parameter
  // would set the peak of a run.
  const bool borrow = device().is_cpu() && gradients_.defined();
  at::Tensor master = borrow ? view(gradients_, index)
                             : at::empty(weights.sizes(), at::TensorOptions().dtype(master_type()));
  fill(master.data_ptr());
  master = master.to(device());
  if (precision_ == Precision::bf16) {
    ops::split_master(master, weights, {});
    const at::Tensor flat = master.view({-1});
    for (const Piece& part : kept_in(offsets_[index], offsets_[index] + flat.numel()))
      ops::split_master(flat.narrow(0, part.begin - offsets_[index], part.size()),
                        weights_.narrow(0, part.begin, part.size()),
                        low_.narrow(0, part.state, part.size()));
  } else {
    weights.copy_(master);
  }
  if (borrow) master.zero_();
}

void ParameterMemory::initialize(uint64_t seed) {
  for (size_t i = 0; i < table_.size(); ++i) {
    const Parameter& parameter = table_[i];
    const auto fill = [&]<typename T>(T* values) {
      if (parameter.initial == Initial::normal) {
        fill_normal(parameter, seed, values);
      } else {
        std::fill_n(values, parameter.size(), T(parameter.initial == Initial::ones ? 1 : 0));
      }
    };
    // The generator runs on the CPU, so that every device begins with the same numbers.
    fill_master(i, [&](void* values) {
      if (precision_ == Precision::fp64) {
        fill(static_cast<double*>(values));
      } else {
        fill(static_cast<float*>(values));
      }
    });
  }
}

}  // namespace sauropod::model

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

template <typename T>
void fill_normal(uint64_t key, double deviation, int64_t size, T* out) {
  at::parallel_for(0, (size + 1) / 2, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const auto [first, second] = base::random_normal_pair(key, static_cast<uint64_t>(pair));
      out[2 * pair] = static_cast<T>(deviation * first);
      if (2 * pair + 1 < size) out[2 * pair + 1] = static_cast<T>(deviation * second);
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
    const bool continues =
        i > 0 && !parameter.group.empty() && parameter.group == table_[i - 1].group;
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
  const bool narrow = precision == Precision::bf16;
  weights_ = make(narrow ? at::kBFloat16 : master_type());
  if (!gradients) return;
  if (narrow) low_ = make(at::kShort);
  gradients_ = make(master_type());
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

at::Tensor ParameterMemory::copy_master(int64_t begin, int64_t end) const {
  const at::Tensor weights = weights_.narrow(0, begin, end - begin);
  const at::Device host = device().is_meta() ? at::kMeta : at::kCPU;
  if (!low_.defined()) return weights.to(host, master_type(), /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor master =
      at::empty(weights.sizes(), at::TensorOptions().dtype(at::kFloat).device(host));
  ops::join_master(weights.to(host), low_.narrow(0, begin, end - begin).to(host), master);
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
    ops::split_master(master, weights, low_.defined() ? view(low_, index) : low_);
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
        fill_normal(base::random_key(seed, parameter.name), parameter.deviation, parameter.size(),
                    values);
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

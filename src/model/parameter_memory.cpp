#include "model/parameter_memory.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

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
  const auto options = at::TensorOptions()
                           .dtype(precision == Precision::fp64 ? at::kDouble : at::kFloat)
                           .device(device);
  // Zeroed, so that the gaps between parameters stay 0 in every sum over the buffer.
  master_ = at::zeros({flat_size_}, options);
  weights_ = separate_weights() ? at::zeros({flat_size_}, options.dtype(at::kBFloat16)) : master_;
  if (gradients) gradients_ = at::zeros({flat_size_}, options);
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

void ParameterMemory::initialize(uint64_t seed) {
  if (device().is_meta()) return;
  for (size_t i = 0; i < table_.size(); ++i) {
    const Parameter& parameter = table_[i];
    at::Tensor place = view(master_, i);
    // The generator runs on the CPU, so that every device begins with the same numbers.
    at::Tensor values = device().is_cpu() ? place : at::empty_like(place, at::kCPU);
    if (parameter.initial == Initial::zeros) {
      values.zero_();
    } else if (parameter.initial == Initial::ones) {
      values.fill_(1);
    } else {
      const uint64_t key = base::random_key(seed, parameter.name);
      if (precision_ == Precision::fp64) {
        fill_normal(key, parameter.deviation, parameter.size(), values.data_ptr<double>());
      } else {
        fill_normal(key, parameter.deviation, parameter.size(), values.data_ptr<float>());
      }
    }
    if (!device().is_cpu()) place.copy_(values);
  }
  round_weights();
}

void ParameterMemory::round_weights() {
  if (separate_weights()) ops::round_to_bf16(master_, weights_);
}

}  // namespace sauropod::model

#include "train/ranks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace sauropod::train {
namespace {

double reduced(comm::Communicator& group, const char* label, double value, comm::Reduce reduce) {
  if (group.size() == 1) return value;
  const at::Tensor one = at::full({1}, value, at::kDouble);
  group.all_reduce(label, one, reduce).wait();
  return one.item<double>();
}

at::Tensor bytes_of(const std::string& text, int64_t size) {
  at::Tensor bytes = at::empty({size}, at::kByte).fill_(0);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

std::vector<std::string> GroupPeers::gather(std::string bytes) {
  if (size() == 1) return {std::move(bytes)};
  const at::Tensor sizes = at::empty({size()}, at::kLong);
  group_.all_gather("sizes of messages", at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong), sizes)
      .wait();
  std::vector<int64_t> offsets{0};
  for (int r = 0; r < size(); ++r) offsets.push_back(offsets.back() + sizes.data_ptr<int64_t>()[r]);
  const at::Tensor all = at::empty({offsets.back()}, at::kByte);
  group_.all_gather("messages", bytes_of(bytes, static_cast<int64_t>(bytes.size())), all, offsets).wait();
  if (rank() > 0) return {};
  std::vector<std::string> result;
  const auto* data = static_cast<const char*>(all.data_ptr());
  for (size_t r = 0; r + 1 < offsets.size(); ++r)
    result.emplace_back(data + offsets[r], data + offsets[r + 1]);
  return result;
}

std::string GroupPeers::broadcast(std::string bytes) {
  if (size() == 1) return bytes;
  const at::Tensor length = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  group_.broadcast("size of a message", length, 0).wait();
  const auto count = length.item<int64_t>();
  const at::Tensor data = rank() == 0 ? bytes_of(bytes, count) : at::empty({count}, at::kByte);
  group_.broadcast("message", data, 0).wait();
  return {static_cast<const char*>(data.data_ptr()), static_cast<size_t>(count)};
}

double sum_over(comm::Communicator& group, const char* label, double value) {
  return reduced(group, label, value, comm::Reduce::sum);
}

double largest_over(comm::Communicator& group, const char* label, double value) {
  return reduced(group, label, value, comm::Reduce::max);
}

std::string agree_on_stop(comm::Communicator& group, const std::string& reason) {
  static constexpr std::array<std::string_view, 5> kReasons = {"", "train.stop_file", "train.max_time",
                                                               "SIGTERM", "SIGINT"};
  const auto found = std::find(kReasons.begin(), kReasons.end(), reason);
  SAUROPOD_CHECK(found != kReasons.end(), "{}", reason);
  const double code = largest_over(group, "stop", static_cast<double>(found - kReasons.begin()));
  return std::string(kReasons[static_cast<size_t>(code)]);
}

}  // namespace sauropod::train

// Whether the kernel has killed a process for want of memory: its counters tell, where they can be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace sauropod::cluster {

class MemoryKills {
 public:
  // Counts from now on. `root`: where /proc and /sys are.
  explicit MemoryKills(std::filesystem::path root = "/");

  enum class Where { nowhere, group, machine };
  // Where a process was killed for want of memory since the last call: among the processes under the same
  // control group's limit, or anywhere on the machine.
  Where look();

 private:
  std::optional<int64_t> of_group() const;
  std::optional<int64_t> of_machine() const;

  std::filesystem::path root_;
  std::optional<int64_t> group_, machine_;
};

}  // namespace sauropod::cluster

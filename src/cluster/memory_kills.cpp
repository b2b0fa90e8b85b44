#include "cluster/memory_kills.h"

#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace sauropod::cluster {
namespace {

// The number after `key` in a file of lines "key number".
std::optional<int64_t> counter(const std::filesystem::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  int64_t number;
  while (file >> name >> number)
    if (name == key) return number;
  return std::nullopt;
}

bool grew(std::optional<int64_t>& before, std::optional<int64_t> now) {
  const bool result = before && now && *now > *before;
  before = now;
  return result;
}

}  // namespace

MemoryKills::MemoryKills(std::filesystem::path root)
    : root_(std::move(root)), group_(of_group()), machine_(of_machine()) {}

MemoryKills::Where MemoryKills::look() {
  const bool group = grew(group_, of_group());
  const bool machine = grew(machine_, of_machine());
  return group ? Where::group : machine ? Where::machine : Where::nowhere;
}

// Lines "number:controllers:path"; a path may not be visible from within a container, its parents may.
std::optional<int64_t> MemoryKills::of_group() const {
  std::ifstream file(root_ / "proc/self/cgroup");
  std::optional<int64_t> found;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool unified = second == first + 1;
    if (!unified && line.substr(first + 1, second - first - 1) != "memory") continue;
    const auto base = root_ / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* name = unified ? "memory.events" : "memory.oom_control";
    for (std::filesystem::path path = std::filesystem::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      if (const auto number = counter(base / path / name, "oom_kill")) {
        found = number;
        break;
      }
      if (path.empty()) break;
    }
  }
  return found;
}

std::optional<int64_t> MemoryKills::of_machine() const { return counter(root_ / "proc/vmstat", "oom_kill"); }

}  // namespace sauropod::cluster

#include "cluster/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include "base/error.h"

namespace sauropod::cluster {
namespace {

int read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : 0;
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) processors.push_back(i);
  return processors;
}

void allow_processors(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0)
    base::fail("a rank can't be pinned to its processors: {}", std::strerror(errno));
}

std::vector<std::vector<int>> divide_processors(int parts, const std::filesystem::path& system) {
  std::vector<std::tuple<int, int, int>> processors;  // socket, core, number
  for (const int number : allowed_processors()) {
    const auto folder = system / fmt::format("devices/system/cpu/cpu{}/topology", number);
    processors.emplace_back(read_number(folder / "physical_package_id"), read_number(folder / "core_id"),
                            number);
  }
  std::sort(processors.begin(), processors.end());
  const int count = static_cast<int>(processors.size());
  if (parts > count)
    base::fail_usage("--pin gives each rank processors of its own, and {} ranks on this host have {}: start "
                     "fewer, or leave --pin out",
                     parts, count);
  std::vector<std::vector<int>> result;
  auto next = processors.begin();
  for (int part = 0; part < parts; ++part) {
    std::vector<int>& mine = result.emplace_back();
    for (int i = 0; i < count / parts + (part < count % parts ? 1 : 0); ++i, ++next)
      mine.push_back(std::get<2>(*next));
  }
  return result;
}

}  // namespace sauropod::cluster

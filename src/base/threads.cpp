#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sauropod::base {

int hardware_threads() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(size_t size, size_t grain, int threads,
                  const std::function<void(size_t begin, size_t end)>& work) {
  SAUROPOD_CHECK(grain > 0 && threads > 0);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    while (true) {
      const size_t begin = next.fetch_add(grain);
      if (begin >= size) return;
      try {
        work(begin, std::min(begin + grain, size));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(size);
        return;
      }
    }
  };
  const size_t pieces = (size + grain - 1) / grain;
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min(static_cast<size_t>(threads), pieces); ++i)
    helpers.emplace_back(run);
  run();
  helpers.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace sauropod::base

// A rank that computes nothing: ten sums with the others, before the sixth of which something may happen to one of them.
//
//     rank_probe well | killed | stopped | failed | hung [RANK] [TIMEOUT_SECONDS]
//
// Started by launchers in tests. A rank that is left without the others ends with 1, as any command does.
#include <ATen/ops/zeros.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/world.h"

namespace {

using namespace sauropod;

void happens(const std::string& what) {
  if (what == "killed") std::raise(SIGKILL);
  if (what == "stopped") std::raise(SIGSTOP);
  if (what == "failed") base::fail("the disk of this rank is full");
  if (what == "hung") std::this_thread::sleep_for(std::chrono::hours(1));
}

void run(const std::string& what, int culprit, std::chrono::seconds timeout) {
  comm::CommunicationOptions options;
  options.timeout = timeout;
  options.startup_timeout = std::chrono::seconds(60);
  const auto world = comm::World::start(comm::read_launch_environment(), options);
  try {
    std::vector<int> ranks;
    for (int rank = 0; rank < world->size(); ++rank) ranks.push_back(rank);
    const auto all = world->make_group("all", ranks);
    at::Tensor x = at::zeros({1000});
    for (int i = 1; i <= 10; ++i) {
      if (i == 6 && world->rank() == culprit) happens(what);
      all->all_reduce("step", x).wait();
    }
  } catch (const comm::CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    world->report_failure(error.what());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "well", argc > 2 ? std::atoi(argv[2]) : -1,
        std::chrono::seconds(argc > 3 ? std::atoi(argv[3]) : 60));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank_probe: %s\n", error.what());
    return 1;
  }
}

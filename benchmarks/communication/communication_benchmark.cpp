// Collectives between processes of this machine, each on a core of its own: ours over shared memory and over Gloo's
// connections, and c10d's own over Gloo. Prints seconds and GB/s (bytes of the whole tensor over the time of the slowest
// rank, the best of several).
//
//   communication_benchmark [RANKS=2] [MEGABYTES=500] [REPEATS=5]
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "base/error.h"
#include "comm/store.h"
#include "comm/world.h"

extern char** environ;

namespace {

using namespace sauropod;

// The best time of `repeats`, each as long as the slowest rank took.
void measure(comm::Communicator& group, const std::string& what, double gigabytes, int repeats,
             const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i <= repeats; ++i) {
    group.barrier("begin").wait();
    const auto begin = std::chrono::steady_clock::now();
    run();
    at::Tensor time = at::full({1}, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                               at::TensorOptions(at::kDouble));
    group.all_reduce("time", time, comm::Reduce::max).wait();
    if (i > 0) best = std::min(best, *time.const_data_ptr<double>());
  }
  if (group.rank() == 0) fmt::print("{:<44} {:8.4f} s  {:6.2f} GB/s\n", what, best, gigabytes / best);
  std::fflush(stdout);
}

void measure_world(bool shared_memory, int64_t megabytes, int repeats, int port) {
  auto environment = comm::read_launch_environment();
  environment.attempt = shared_memory;
  environment.store_port = port;
  auto world = comm::World::start(environment, {.interface = "", .shared_memory = shared_memory});
  std::vector<int> ranks(static_cast<size_t>(world->size()));
  for (int i = 0; i < world->size(); ++i) ranks[i] = i;
  auto group = world->make_group("all", ranks);
  const int64_t n = megabytes * 1000000 / 4 / world->size();
  const double gigabytes = static_cast<double>(n * world->size()) * 4e-9;
  at::Tensor whole = at::full({n * world->size()}, 1.5f), part = at::full({n}, 1.5f);
  const std::string by = fmt::format("{}, {} MB", group->backend(), megabytes);
  measure(*group, "all-reduce, " + by, gigabytes, repeats, [&] { group->all_reduce("x", whole).wait(); });
  measure(*group, "reduce-scatter, " + by, gigabytes, repeats,
          [&] { group->reduce_scatter("x", whole, part).wait(); });
  measure(*group, "all-gather, " + by, gigabytes, repeats, [&] { group->all_gather("x", part, whole).wait(); });
  at::Tensor small = at::full({256}, 1.f);
  measure(*group, fmt::format("1000 all-reduces of 1 KB, {}", group->backend()), 1e-3, repeats, [&] {
    for (int i = 0; i < 1000; ++i) group->all_reduce("small", small).wait();
  });
  if (!shared_memory) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.waitWorkers = false;
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    auto gloo = c10d::ProcessGroupGloo::Options::create();
    gloo->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    auto peers = c10::make_intrusive<c10d::ProcessGroupGloo>(store, world->rank(), world->size(), gloo);
    std::vector<at::Tensor> tensors = {whole};
    measure(*group, fmt::format("all-reduce, c10d over Gloo, {} MB", megabytes), gigabytes, repeats,
            [&] { peers->allreduce(tensors)->wait(); });
    measure(*group, fmt::format("reduce-scatter, c10d over Gloo, {} MB", megabytes), gigabytes, repeats,
            [&] { peers->_reduce_scatter_base(part, whole)->wait(); });
    tensors = {small};
    measure(*group, "1000 all-reduces of 1 KB, c10d over Gloo", 1e-3, repeats, [&] {
      for (int i = 0; i < 1000; ++i) peers->allreduce(tensors)->wait();
    });
    group->barrier("end").wait();
  }
}

int run(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 500;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  if (argc > 4) {  // a rank
    const int port = std::atoi(argv[4]);
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(std::atoi(argv[5]) % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), &cores);
    sched_setaffinity(0, sizeof(cores), &cores);
    for (const bool shared_memory : {true, false}) measure_world(shared_memory, megabytes, repeats, port);
    return 0;
  }
  const comm::StoreServer server;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> variables = {
        fmt::format("SAUROPOD_RANK={}", rank), fmt::format("SAUROPOD_LOCAL_RANK={}", rank),
        fmt::format("SAUROPOD_WORLD_SIZE={}", ranks), fmt::format("SAUROPOD_LOCAL_SIZE={}", ranks),
        fmt::format("SAUROPOD_STORE=127.0.0.1:{}", server.port()), "OMP_NUM_THREADS=1"};
    std::vector<std::string> words = {argv[0], std::to_string(ranks), std::to_string(megabytes),
                                      std::to_string(repeats), std::to_string(server.port()), std::to_string(rank)};
    std::vector<char*> entries, arguments;
    for (std::string& variable : variables) entries.push_back(variable.data());
    for (char** entry = environ; *entry; ++entry) entries.push_back(*entry);
    for (std::string& word : words) arguments.push_back(word.data());
    entries.push_back(nullptr), arguments.push_back(nullptr);
    pid_t process = 0;
    if (posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments.data(), entries.data()) == 0)
      processes.push_back(process);
  }
  int result = static_cast<int>(processes.size()) == ranks ? 0 : 1;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    if (status != 0) result = 1;
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

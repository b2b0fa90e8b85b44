// A rank of the scaling benchmark; shapes and protocol are in README.md beside this file.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "comm/mesh.h"
#include "parallel/distributed_model.h"
#include "parallel/optimizer.h"
#include "train/memory_policy.h"

namespace sauropod {
namespace {

using Clock = std::chrono::steady_clock;

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  base::fail("cannot read VmHWM from /proc/self/status");
}

model::ModelOptions shape(const std::string& name) {
  model::ModelOptions m;
  m.layers = 12;
  m.hidden = 768;
  m.heads = 12;
  m.context = 512;
  m.vocabulary = 50257;
  if (name == "small") {
    m.layers = 2;
    m.hidden = 128;
    m.heads = 4;
    m.vocabulary = 1000;
  } else if (name != "124m") {
    base::fail_usage("shape '{}' is not known; choose 124m or small", name);
  }
  m.resolve(0);
  return m;
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--shape", "124m"}, {"--precision", "fp32"}, {"--zero", "0"}, {"--sequences", "4"}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.contains(argv[i]))
      base::fail_usage("'{}' is not known or lacks its value; see README.md", argv[i]);
    options[argv[i]] = argv[i + 1];
  }
  train::set_memory_policy();
  at::set_num_threads(1);
  const auto world = comm::World::start(comm::read_launch_environment(), {});
  const comm::Mesh mesh(*world, {});
  const model::ModelOptions m = shape(options["--shape"]);
  parallel::ParallelOptions layout;
  layout.zero = options["--zero"] == "1";
  parallel::DistributedModel model(
      m, layout, parallel::place(m, layout, mesh.layout(), mesh.coordinates()),
      model::parse_precision(options["--precision"]), at::kCPU, model::Recompute::none, mesh);
  parallel::Optimizer optimizer(model.memory(), model.placement().held, mesh, layout.zero, {});
  model.memory().initialize(1);
  const int64_t sequences = std::stoll(options["--sequences"]);

  uint64_t drawn = static_cast<uint64_t>(world->rank()) << 40;
  double exposed_before = 0;
  const auto exposed = [&] {
    double sum = 0;
    for (const comm::Communicator* group : {&mesh.data(), &mesh.world()})
      for (const auto& call : group->statistics()) sum += call.exposed_seconds;
    return sum;
  };
  const auto step = [&] {
    ops::CrossEntropyOptions loss;
    loss.scale = 1.0 / static_cast<double>(sequences * m.context * world->size());
    const double nats = model.forward_backward(
        1,
        [&](int64_t) {
          model::Batch batch{at::empty({sequences, m.context}, at::kInt),
                             at::empty({sequences, m.context}, at::kInt),
                             {}};
          for (const at::Tensor& ids : {batch.tokens, batch.targets})
            for (int64_t i = 0; i < ids.numel(); ++i)
              ids.data_ptr<int32_t>()[i] = static_cast<int32_t>(
                  base::random_bits(7, drawn++) % static_cast<uint64_t>(m.vocabulary));
          return batch;
        },
        loss, optimizer.hooks());
    optimizer.reduce_gradients();
    optimizer.update(3e-4, optimizer.gradient_norm());
    return nats;
  };

  for (int i = 0; i < 2; ++i) step();
  std::printf("{\"ready\": true, \"parameters\": %ld}\n",
              static_cast<long>(model::parameter_count(model.memory().table())));
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    exposed_before = exposed();
    const auto begin = Clock::now();
    step();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    std::printf("{\"seconds\": %.6f, \"exposed\": %.6f}\n", seconds.count(),
                exposed() - exposed_before);
    std::fflush(stdout);
  }
  std::printf("{\"peak_bytes\": %ld}\n", static_cast<long>(peak_bytes()));
  return 0;
}

}  // namespace
}  // namespace sauropod

int main(int argc, char** argv) {
  try {
    return sauropod::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scaling_benchmark: %s\n", error.what());
    return 1;
  }
}

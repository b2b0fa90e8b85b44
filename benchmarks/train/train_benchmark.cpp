// Our worker of the training benchmark; shapes and protocol are in README.md beside this file.
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
#include "model/transformer.h"
#include "train/memory_policy.h"
#include "parallel/optimizer.h"

namespace sauropod {
namespace {

struct Shape {
  int64_t layers, hidden, heads, sequences, length, vocabulary;
};

Shape shape_named(const std::string& name) {
  if (name == "a") return {6, 384, 6, 16, 256, 8192};
  if (name == "b") return {12, 768, 12, 4, 512, 50257};
  if (name == "c") return {4, 512, 8, 4, 512, 262144};
  base::fail_usage("shape '{}' is not known; choose a, b or c", name);
}

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  base::fail("cannot read VmHWM from /proc/self/status");
}

class Worker {
 public:
  Worker(const Shape& shape, model::Precision precision, model::Recompute recompute,
         int64_t loss_chunk)
      : shape_(shape),
        options_(options_of(shape)),
        memory_(model::parameter_table(options_), precision, at::kCPU, /*gradients=*/true),
        model_(options_, memory_, recompute),
        optimizer_(memory_, {}),
        loss_chunk_(loss_chunk) {
    memory_.initialize(1);
  }

  double step() {
    const int64_t tokens = shape_.sequences * shape_.length;
    const auto options = at::TensorOptions().dtype(at::kInt);
    model::Batch batch;
    batch.tokens = at::empty({shape_.sequences, shape_.length}, options);
    batch.targets = at::empty({shape_.sequences, shape_.length}, options);
    for (int64_t i = 0; i < tokens; ++i) {
      batch.tokens.data_ptr<int32_t>()[i] = random_item();
      batch.targets.data_ptr<int32_t>()[i] = random_item();
    }
    ops::CrossEntropyOptions loss_options;
    loss_options.scale = 1.0 / static_cast<double>(tokens);
    loss_options.chunk = loss_chunk_;
    const at::Tensor loss = model_.loss(batch, loss_options).loss;
    loss.backward();
    optimizer_.update(3e-4, optimizer_.gradient_norm());
    return loss.item<double>();
  }

  int64_t tokens() const { return shape_.sequences * shape_.length; }
  int64_t parameters() const { return model::parameter_count(memory_.table()); }

 private:
  static model::ModelOptions options_of(const Shape& shape) {
    model::ModelOptions options;
    options.layers = shape.layers;
    options.hidden = shape.hidden;
    options.heads = shape.heads;
    options.context = shape.length;
    options.vocabulary = shape.vocabulary;
    options.resolve(0);
    return options;
  }

  int32_t random_item() {
    return static_cast<int32_t>(base::random_bits(7, drawn_++) %
                                static_cast<uint64_t>(shape_.vocabulary));
  }

  Shape shape_;
  model::ModelOptions options_;
  model::ParameterMemory memory_;
  model::Transformer model_;
  parallel::Optimizer optimizer_;
  int64_t loss_chunk_;
  uint64_t drawn_ = 0;
};

int run(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--shape", "a"}, {"--precision", "fp32"}, {"--recompute", "none"}, {"--loss-chunk", "0"}};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !options.contains(argv[i]))
      base::fail_usage("'{}' is not known or lacks its value; see README.md", argv[i]);
    options[argv[i]] = argv[i + 1];
  }
  train::set_memory_policy();
  Worker worker(shape_named(options["--shape"]), model::parse_precision(options["--precision"]),
                model::parse_recompute(options["--recompute"]), std::stoll(options["--loss-chunk"]));
  for (int i = 0; i < 2; ++i) worker.step();
  std::printf("{\"ready\": true, \"name\": \"sauropod\", \"parameters\": %ld}\n",
              worker.parameters());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const auto begin = std::chrono::steady_clock::now();
    const double loss = worker.step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("{\"seconds\": %.6f, \"tokens\": %ld, \"loss\": %.6f}\n", seconds.count(),
                worker.tokens(), loss);
    std::fflush(stdout);
  }
  std::printf("{\"peak_bytes\": %ld}\n", peak_bytes());
  return 0;
}

}  // namespace
}  // namespace sauropod

int main(int argc, char** argv) {
  try {
    return sauropod::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_benchmark: %s\n", error.what());
    return 1;
  }
}

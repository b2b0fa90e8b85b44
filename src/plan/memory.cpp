#include "plan/memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/units.h"
#include "model/parameter_memory.h"
#include "ops/cross_entropy.h"

namespace sauropod::plan {
namespace {

// Elements that one block keeps for each token: see block.cpp and the nodes in ops/.
int64_t kept_per_token(const model::ModelOptions& m, const std::string& recompute) {
  if (recompute == "full") return 2 * m.hidden;  // residual and delta
  const int64_t mixed = m.heads * m.head_size;
  const int64_t qkv = mixed + 2 * m.kv_heads * m.head_size;
  const int64_t pre = m.mlp_hidden * (m.family == "llama" ? 2 : 1);
  const int64_t active = recompute == "selective" ? 0 : m.mlp_hidden;
  // Both normalisations keep their sum and output; the linear layers keep qkv and mixed; the MLP keeps its
  // input of the activation and, unless it is computed again, the output.
  return 4 * m.hidden + qkv + mixed + pre + active;
}

int64_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

}  // namespace

int64_t Memory::total() const {
  return weights + gradients + moments + activations + working + snapshot;
}

Memory estimate_memory(const train::RunOptions& options) {
  const model::ModelOptions& m = options.model;
  const model::Precision precision = model::parse_precision(options.train.precision);
  const int64_t wide = precision == model::Precision::fp64 ? 8 : 4;
  const int64_t narrow = precision == model::Precision::bf16 ? 2 : wide;
  const int64_t parameters = model::parameter_count(model::parameter_table(m));
  const int64_t largest_batch = [&] {
    int64_t largest = options.train.batch_sequences;
    for (const auto& row : options.train.batch_ramp) largest = std::max(largest, row[0]);
    return largest;
  }();
  const int64_t tokens = std::min(options.train.micro_batch, largest_batch) * m.context;

  Memory memory;
  memory.weights = parameters * wide;  // the master copy; in bf16 the computation reads half of it
  memory.gradients = parameters * wide;
  memory.moments = 2 * parameters * wide;
  memory.snapshot = 3 * parameters * wide;
  memory.activations =
      tokens * narrow * (m.layers * kept_per_token(m, options.train.recompute) + 3 * m.hidden);
  if (options.train.recompute == "full")
    memory.activations += tokens * narrow * kept_per_token(m, "none");
  const int64_t chunk = options.train.loss_chunk > 0
                            ? std::min(options.train.loss_chunk, tokens)
                            : ops::default_chunk(tokens, m.vocabulary, narrow);
  const int64_t logits = chunk * m.vocabulary * narrow;
  const int64_t widest = 2 * tokens * m.mlp_hidden * narrow;
  memory.working = std::max(logits + 2 * tokens * m.hidden * narrow, widest);
  return memory;
}

int64_t available_memory() {
  int64_t available = -1;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) available = std::stoll(line.substr(13)) * 1024;
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0) {
    const int64_t left = std::max<int64_t>(0, limit - used);
    available = available < 0 ? left : std::min(available, left);
  }
  return available;
}

std::string describe(const Memory& memory) {
  std::string text;
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes > 0)
      text += fmt::format("\n  {:<34}{:>10}", name, base::format_bytes(static_cast<double>(bytes)));
  };
  add("weights", memory.weights);
  add("gradients", memory.gradients);
  add("Adam's moments", memory.moments);
  add("activations of one microbatch", memory.activations);
  add("logits and temporaries", memory.working);
  add("copy while a checkpoint is written", memory.snapshot);
  add("in all", memory.total());
  return text;
}

void require_memory(const train::RunOptions& options) {
  if (options.train.device != "cpu") return;
  const Memory memory = estimate_memory(options);
  const int64_t available = available_memory();
  if (available < 0 || memory.total() <= available) return;
  base::fail_usage(
      "this recipe needs {} of memory and {} are available:{}\nWhat reduces it: train.micro_batch "
      "(now {}), train.recompute (now {}), model.layers, model.hidden, or a smaller vocabulary.",
      base::format_bytes(static_cast<double>(memory.total())),
      base::format_bytes(static_cast<double>(available)), describe(memory),
      options.train.micro_batch, options.train.recompute);
}

}  // namespace sauropod::plan

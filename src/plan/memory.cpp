#include "plan/memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/units.h"
#include "model/parameter_memory.h"
#include "ops/cross_entropy.h"
#include "parallel/placement.h"
#include "parallel/schedule.h"

namespace sauropod::plan {
namespace {

// Elements that one block keeps for each token on one rank: see block.cpp and the nodes in ops/.
double kept_per_token(const model::ModelOptions& m, const std::string& recompute,
                      const parallel::ParallelOptions& parallel) {
  const auto tensor = static_cast<double>(parallel.tensor);
  const auto hidden = static_cast<double>(m.hidden);
  const double rows = parallel.sequence ? hidden / tensor : hidden;  // of tokens that ranks divide
  if (recompute == "full") return 2 * rows;  // residual and delta
  const int64_t mixed = m.heads * m.head_size;
  const int64_t qkv = mixed + 2 * m.kv_heads * m.head_size;
  const int64_t pre = m.mlp_hidden * (m.family == "llama" ? 2 : 1);
  const int64_t active = recompute == "selective" ? 0 : m.mlp_hidden;
  // Both normalisations keep their sum, the products after them their input (of all tokens); the linear
  // layers keep qkv and mixed; the MLP keeps its input of the activation and, unless it is computed again,
  // the output.
  return 2 * rows + 2 * hidden + static_cast<double>(qkv + mixed + pre + active) / tensor;
}

// Forward passes of a stage's chunks that wait for their backward passes at once (parallel/schedule.h).
int64_t passes_held(const parallel::ParallelOptions& parallel, int64_t stage, int64_t microbatches) {
  std::vector<parallel::Action> order =
      parallel::schedule(parallel.pipeline, stage, parallel.virtual_stages, microbatches);
  int64_t held = 0, most = 0;
  for (const parallel::Action& action : order) {
    held += action.forward ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
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

Memory estimate_memory(const train::RunOptions& options, int64_t ranks, int64_t stage) {
  const model::ModelOptions& m = options.model;
  const parallel::ParallelOptions& parallel = options.parallel;
  const model::Precision precision = model::parse_precision(options.train.precision);
  const int64_t wide = precision == model::Precision::fp64 ? 8 : 4;
  const int64_t narrow = precision == model::Precision::bf16 ? 2 : wide;
  const comm::Layout layout =
      comm::make_layout(static_cast<int>(ranks), static_cast<int>(parallel.tensor),
                        static_cast<int>(parallel.pipeline));
  const parallel::Placement placement =
      parallel::place(m, parallel, layout, {0, 0, static_cast<int>(stage)});
  const int64_t parameters = model::parameter_count(placement.table);
  const int64_t share = (parameters + layout.data - 1) / layout.data;
  const int64_t updated = parallel.zero ? share : parameters;
  const int64_t largest_batch = [&] {
    int64_t largest = options.train.batch_sequences;
    for (const auto& row : options.train.batch_ramp) largest = std::max(largest, row[0]);
    return (largest + layout.data - 1) / layout.data;
  }();
  const int64_t micro_batch = std::min(options.train.micro_batch, largest_batch);
  const int64_t microbatches = (largest_batch + micro_batch - 1) / micro_batch;
  const int64_t tokens = micro_batch * m.context;

  Memory memory;
  // In bf16 the weights and, of what this rank updates, the other half of their master copy.
  memory.weights = precision == model::Precision::bf16 ? 2 * parameters + 2 * updated
                                                       : parameters * wide;
  memory.gradients = parameters * wide;
  memory.moments = 2 * updated * wide;
  memory.snapshot = 3 * share * wide;
  int64_t layers = 0;
  bool head = false;
  for (const model::Span& span : placement.spans) {
    layers = std::max(layers, span.end - span.begin);  // of a chunk
    head = head || span.head;
  }
  const double token_bytes = static_cast<double>(tokens * narrow);
  const double kept = kept_per_token(m, options.train.recompute, parallel);
  const int64_t held = passes_held(parallel, stage, microbatches);
  memory.activations = static_cast<int64_t>(
      token_bytes * (static_cast<double>(held * layers) * kept + 3.0 * static_cast<double>(m.hidden)));
  if (options.train.recompute == "full")
    memory.activations += static_cast<int64_t>(token_bytes * kept_per_token(m, "none", parallel));
  const int64_t items = (m.vocabulary + parallel.tensor - 1) / parallel.tensor;
  const int64_t chunk = options.train.loss_chunk > 0
                            ? std::min(options.train.loss_chunk, tokens)
                            : ops::default_chunk(tokens, items, narrow);
  const int64_t logits = head ? chunk * items * narrow + 2 * tokens * m.hidden * narrow : 0;
  const int64_t widest = 2 * tokens * m.mlp_hidden / parallel.tensor * narrow;
  memory.working = std::max(logits, widest);
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
  add("activations", memory.activations);
  add("logits and temporaries", memory.working);
  add("copy while a checkpoint is written", memory.snapshot);
  add("in all", memory.total());
  return text;
}

std::string describe_stages(const std::vector<int64_t>& layers, const std::vector<int64_t>& parameters,
                            const std::vector<Memory>& memory) {
  const auto bytes = [](int64_t n) { return base::format_bytes(static_cast<double>(n)); };
  std::string text = fmt::format("{:>6}{:>8}{:>12}{:>10}{:>11}{:>10}{:>12}{:>10}{:>10}{:>10}", "stage",
                                 "layers", "parameters", "weights", "gradients", "moments",
                                 "activations", "working", "snapshot", "in all");
  for (size_t stage = 0; stage < memory.size(); ++stage) {
    const Memory& m = memory[stage];
    text += fmt::format("\n{:>6}{:>8}{:>12}{:>10}{:>11}{:>10}{:>12}{:>10}{:>10}{:>10}", stage,
                        layers[stage], base::format_count(static_cast<double>(parameters[stage])),
                        bytes(m.weights), bytes(m.gradients), bytes(m.moments), bytes(m.activations),
                        bytes(m.working), bytes(m.snapshot), bytes(m.total()));
  }
  return text;
}

void require_memory(const train::RunOptions& options, int64_t ranks, int64_t ranks_here) {
  if (options.train.device != "cpu") return;
  Memory memory;  // of the rank that needs most
  for (int64_t stage = 0; stage < options.parallel.pipeline; ++stage)
    if (const Memory one = estimate_memory(options, ranks, stage); one.total() > memory.total())
      memory = one;
  // Ranks of one machine share what it has.
  const int64_t available = available_memory() / std::max<int64_t>(1, ranks_here);
  if (available <= 0 || memory.total() <= available) return;
  base::fail_usage(
      "this recipe needs {} of memory a rank and {} are available:{}\nWhat reduces it: train.micro_batch "
      "(now {}), train.recompute (now {}), model.layers, model.hidden, or a smaller vocabulary.",
      base::format_bytes(static_cast<double>(memory.total())),
      base::format_bytes(static_cast<double>(available)), describe(memory),
      options.train.micro_batch, options.train.recompute);
}

}  // namespace sauropod::plan

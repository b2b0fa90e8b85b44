#include "parallel/options.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "config/section.h"

namespace sauropod::parallel {
namespace {

// Why this layout can't be, or nothing.
std::string fault(const ParallelOptions& o, const model::ModelOptions& model, int64_t world,
                  int64_t tokens) {
  const int64_t chunks = o.pipeline * o.virtual_stages;
  if (world % (o.tensor * o.pipeline) != 0)
    return fmt::format("parallel.tensor · parallel.pipeline = {} · {} does not divide the {} ranks",
                       o.tensor, o.pipeline, world);
  if (model.heads % o.tensor != 0)
    return fmt::format("parallel.tensor = {} does not divide model.heads = {}", o.tensor,
                       model.heads);
  if (model.kv_heads % o.tensor != 0)
    return fmt::format("parallel.tensor = {} does not divide model.kv_heads = {}", o.tensor,
                       model.kv_heads);
  if (model.mlp_hidden % o.tensor != 0)
    return fmt::format("parallel.tensor = {} does not divide model.mlp_hidden = {}", o.tensor,
                       model.mlp_hidden);
  if (o.sequence && o.tensor == 1)
    return "parallel.sequence divides tokens among tensor-parallel ranks, and parallel.tensor is 1";
  if (o.sequence && tokens % o.tensor != 0)
    return fmt::format("parallel.sequence needs microbatches whose tokens ({}) parallel.tensor = {} "
                       "divides",
                       tokens, o.tensor);
  if (o.virtual_stages > 1 && o.pipeline == 1)
    return "parallel.virtual_stages needs a pipeline, and parallel.pipeline is 1";
  if (chunks > model.layers)
    return fmt::format("parallel.pipeline · parallel.virtual_stages = {} · {} is more than "
                       "model.layers = {}",
                       o.pipeline, o.virtual_stages, model.layers);
  return "";
}

double distance(int64_t a, int64_t b) {
  return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

// The two layouts nearest to the asked one that the model and the world allow.
std::string nearest(const ParallelOptions& asked, const model::ModelOptions& model, int64_t world,
                    int64_t tokens) {
  std::vector<std::pair<double, std::string>> found;
  for (int64_t tensor = 1; tensor <= world; ++tensor)
    for (int64_t pipeline = 1; tensor * pipeline <= world; ++pipeline)
      for (const int64_t chunks : {asked.virtual_stages, int64_t{1}}) {
        ParallelOptions o{tensor, asked.sequence && tensor > 1, pipeline, chunks, {}, asked.zero};
        if (!fault(o, model, world, tokens).empty()) continue;
        std::string text = fmt::format("tensor = {}, pipeline = {}", tensor, pipeline);
        if (chunks > 1) text += fmt::format(", virtual_stages = {}", chunks);
        found.emplace_back(distance(tensor, asked.tensor) + distance(pipeline, asked.pipeline) +
                               distance(chunks, asked.virtual_stages) / 2,
                           std::move(text));
        if (chunks == 1) break;
      }
  std::sort(found.begin(), found.end());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(2, found.size()); ++i)
    text += (i > 0 ? "; " : "") + found[i].second;
  return text;
}

}  // namespace

void ParallelOptions::declare(config::Section& section) {
  section.option("tensor", tensor,
                 {.help = "Ranks that share each matrix; best within one node", .min = 1});
  section.option("sequence", sequence,
                 {.help = "Tensor-parallel ranks share norms and residuals too, by tokens"});
  section.option("pipeline", pipeline, {.help = "Stages of consecutive layers", .min = 1});
  section.option("virtual_stages", virtual_stages,
                 {.help = "Chunks of layers that a stage holds: shorter idle times, more messages",
                  .min = 1});
  section.option("stage_layers", stage_layers,
                 {.help = "Layers of each chunk in the model's order, virtual_stages · pipeline "
                          "numbers; empty: balanced, the output layer counted"});
  section.option("zero", zero,
                 {.help = "Data-parallel ranks share the optimizer's state (ZeRO-1)"});
}

void check_layout(const ParallelOptions& options, const model::ModelOptions& model, int64_t world,
                  int64_t tokens) {
  const std::string why = fault(options, model, world, tokens);
  if (!why.empty()) {
    const std::string others = nearest(options, model, world, tokens);
    base::fail_usage("{}{}{}", why, others.empty() ? "" : ". Layouts near it that do: ", others);
  }
  if (options.stage_layers.empty()) return;
  const auto chunks = static_cast<size_t>(options.pipeline * options.virtual_stages);
  const int64_t sum =
      std::accumulate(options.stage_layers.begin(), options.stage_layers.end(), int64_t{0});
  bool positive = true;
  for (const int64_t layers : options.stage_layers) positive = positive && layers > 0;
  if (options.stage_layers.size() != chunks || sum != model.layers || !positive)
    base::fail_usage("parallel.stage_layers = [{}] must be {} positive numbers (parallel.pipeline · "
                     "parallel.virtual_stages) whose sum is model.layers = {}",
                     fmt::join(options.stage_layers, ", "), chunks, model.layers);
}

}  // namespace sauropod::parallel

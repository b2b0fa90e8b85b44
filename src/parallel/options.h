// How a run is divided among its ranks: the recipe's [parallel] section. What remains of the world after
// tensor and pipeline is data parallel. Described in docs/parallel.md.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"

namespace sauropod::config {
class Section;
}

namespace sauropod::parallel {

struct ParallelOptions {
  int64_t tensor = 1;          // ranks that share each matrix (Shoeybi et al., 2019)
  bool sequence = false;       // they share the rest of a block too, by tokens (Korthikanti et al., 2022)
  int64_t pipeline = 1;        // stages (Narayanan et al., 2021)
  int64_t virtual_stages = 1;  // chunks of layers a stage holds
  std::vector<int64_t> stage_layers;  // of each chunk in the model's order; empty: balanced
  bool zero = true;  // ZeRO-1 (Rajbhandari et al., 2020): data-parallel ranks share the optimizer's state

  void declare(config::Section& section);
};

// Throws base::Error (usage) when `world` ranks can't hold this model so; the message names the layouts
// nearest to the asked one that can. tokens: of the smallest microbatch.
void check_layout(const ParallelOptions& options, const model::ModelOptions& model, int64_t world,
                  int64_t tokens);

}  // namespace sauropod::parallel

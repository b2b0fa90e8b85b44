// The memory that each rank of a run needs, computed from the recipe before anything is allocated.
//
// Exact for parameters and optimizer (they come from the parameter table); activations are those that the
// operations of ops/ keep, which is stated beside each term in memory.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/options.h"

namespace sauropod::plan {

struct Memory {
  int64_t weights = 0, gradients = 0, moments = 0;
  int64_t activations = 0;  // kept for backward passes at once
  int64_t working = 0;      // logits of one chunk and the widest temporaries
  int64_t snapshot = 0;     // the copy that a checkpoint is written from
  int64_t total() const;
};

// Of a rank of a stage (the first of its tensor group, which has most). `options` is resolved (train::prepare).
Memory estimate_memory(const train::RunOptions& options, int64_t ranks, int64_t stage);

// What this machine has to give: available memory, or less where a cgroup limits the process. Bytes.
int64_t available_memory();

// Throws base::Error (usage) with the numbers when a rank's estimate exceeds its share of what is available
// on the CPU to `ranks_here` ranks.
void require_memory(const train::RunOptions& options, int64_t ranks, int64_t ranks_here);

// "weights 1.2 GB, gradients …".
std::string describe(const Memory& memory);

// A table of the stages of a pipeline, one line each, with their sum of parameters.
std::string describe_stages(const std::vector<int64_t>& layers, const std::vector<int64_t>& parameters,
                            const std::vector<Memory>& memory);

}  // namespace sauropod::plan

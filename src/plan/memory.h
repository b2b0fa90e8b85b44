// The memory that a run on one process needs, computed from the recipe before anything is allocated.
//
// Exact for parameters and optimizer (they come from the parameter table); activations are those that the
// operations of ops/ keep, which is stated beside each term in memory.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "train/options.h"

namespace sauropod::plan {

struct Memory {
  int64_t weights = 0, gradients = 0, moments = 0;
  int64_t activations = 0;  // kept for the backward pass of one microbatch
  int64_t working = 0;      // logits of one chunk and the widest temporaries
  int64_t snapshot = 0;     // the copy that a checkpoint is written from
  int64_t total() const;
};

// `options` is resolved (train::prepare).
Memory estimate_memory(const train::RunOptions& options);

// What this machine has to give: available memory, or less where a cgroup limits the process. Bytes.
int64_t available_memory();

// Throws base::Error (usage) with the numbers when the estimate exceeds what is available on the CPU.
void require_memory(const train::RunOptions& options);

// "weights 1.2 GB, gradients …".
std::string describe(const Memory& memory);

}  // namespace sauropod::plan

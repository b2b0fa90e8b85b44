// A training run, as one of its ranks makes it (docs/train.md, docs/parallel.md).
#pragma once

#include <string>
#include <vector>

#include "train/prepare.h"

namespace sauropod::train {

struct RunResult {
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t steps_taken = 0;           // by this process; 0: there was nothing left to do
  double loss = 0;                   // of the last step, where there was one
  double validation_bits_per_byte = 0;  // 0: not evaluated
  std::string ended_by;              // "steps", or StopRequest's reason
  std::string checkpoint;            // path of the last one
};

// Trains to the end, or until a signal, the time or the stop file asks to stop; leaves the run's folder as
// docs/run-folder.md says. Throws base::Error.
RunResult run(Prepared prepared);

struct MetaResult {
  int64_t parameters = 0;
  double flops_per_token = 0;
  std::vector<int64_t> stage_layers;      // of each stage of the pipeline
  std::vector<int64_t> stage_parameters;  // of one of its ranks
};

// Forward and backward passes on shapes alone, of one rank of each stage: what `train.device = "meta"` runs.
MetaResult run_on_meta(const Prepared& prepared);

}  // namespace sauropod::train

// What a checkpoint holds of a run, and how it comes back. Each rank saves and loads its own part; any layout
// reads what any other wrote.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "checkpoint/snapshot.h"
#include "parallel/distributed_model.h"
#include "parallel/optimizer.h"
#include "train/guard.h"

namespace sauropod::train {

// Where a run stands after `step` steps. The samples consumed follow from the recipe.
struct Progress {
  int64_t step = 0;       // steps taken, skipped ones included
  int64_t sequences = 0;  // samples consumed
  int64_t tokens = 0;     // tokens consumed
  double seconds = 0;     // spent in steps, over all parts of the run
};

// Copies this rank's share of master weights and moments, so that training may go on while they are
// written. The shares of all ranks tile the model.
checkpoint::Snapshot take_snapshot(const parallel::DistributedModel& model,
                                   const parallel::Optimizer& optimizer, const Guard& guard,
                                   const Progress& progress, const nlohmann::json& recipe,
                                   const nlohmann::json& data, const model::ModelOptions& options,
                                   const std::string& tokenizer_file);

// Fills weights, moments, guard and progress from a checkpoint whose model is the same. A parameter that
// is missing or has another shape is a base::Error that names it.
void restore(const checkpoint::Reader& reader, model::ParameterMemory& memory,
             parallel::Optimizer& optimizer, Guard& guard, Progress& progress);

// Only the weights, e.g. to begin another run from them.
void restore_weights(const checkpoint::Reader& reader, model::ParameterMemory& memory);

}  // namespace sauropod::train

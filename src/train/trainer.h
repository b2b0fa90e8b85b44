// The state of one run, as one of its ranks has it, and its steps; run.cpp drives it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "checkpoint/writer.h"
#include "data/training_data.h"
#include "data/validation_data.h"
#include "eval/validation.h"
#include "parallel/distributed_model.h"
#include "parallel/optimizer.h"
#include "storage/local_store.h"
#include "telemetry/journal.h"
#include "train/prepare.h"
#include "train/ranks.h"
#include "train/state.h"

namespace sauropod::train {

struct StepResult {
  double loss = 0;  // nats per token
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  int64_t tokens = 0;  // of this step
  std::string skipped;  // why the update was not made; empty: it was
};

// Not thread-safe; checkpoints are written by a thread of their own from copies. All ranks of the world make
// the same calls and get the same results.
class Trainer {
 public:
  // Opens the data, allocates, and initialises or restores.
  Trainer(const Prepared& prepared, comm::World& world);

  const Progress& progress() const { return progress_; }
  const Prepared& prepared() const { return prepared_; }
  int64_t parameters() const;  // of the whole model
  at::Device device() const { return model_.device(); }
  const comm::Mesh& mesh() const { return mesh_; }
  // Into the journal, which rank 0 keeps.
  void event(std::string_view name, const nlohmann::json& fields);
  const data::TrainingData& data() const { return data_; }

  // Seconds of a step's forward and backward pass at the full batch, for fit_time; nothing is changed.
  double time_one_step();
  // Throws what went wrong with a checkpoint that is being written.
  StepResult step();
  std::optional<eval::Score> validate();
  // Copies the state and leaves the writing to the background; returns the path.
  std::string checkpoint();
  // Waits for the writing; throws what went wrong with it.
  void finish_checkpoints() { writer_.wait(); }
  // Why the run should end, when any rank has a reason.
  std::string agree_on_stop(const std::string& reason);

 private:
  void begin();
  void begin_anew();
  bool resume();
  double forward_backward(int64_t sequences);

  Prepared prepared_;
  const RunOptions& options_;
  comm::Mesh mesh_;
  GroupPeers peers_;
  storage::LocalStore store_;
  std::optional<telemetry::Journal> journal_;
  data::TrainingData data_;
  std::unique_ptr<data::ValidationData> validation_;
  parallel::DistributedModel model_;
  parallel::Optimizer optimizer_;
  Guard guard_;
  Progress progress_;
  checkpoint::Writer writer_;
};

// Where a run's checkpoints go.
std::filesystem::path checkpoint_folder(const Prepared& prepared);

}  // namespace sauropod::train

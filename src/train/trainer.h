// The state of one run and its steps; run.cpp drives it.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/writer.h"
#include "data/training_data.h"
#include "data/validation_data.h"
#include "eval/validation.h"
#include "model/transformer.h"
#include "storage/local_store.h"
#include "telemetry/journal.h"
#include "train/prepare.h"
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

// Not thread-safe; checkpoints are written by a thread of their own from copies.
class Trainer {
 public:
  // Opens the data, allocates, and initialises or restores.
  explicit Trainer(const Prepared& prepared);

  const Progress& progress() const { return progress_; }
  const Prepared& prepared() const { return prepared_; }
  int64_t parameters() const { return model::parameter_count(memory_.table()); }
  at::Device device() const { return memory_.device(); }
  telemetry::Journal& journal() { return journal_; }
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

 private:
  void begin();
  void resume(const checkpoint::Reader& reader);
  double forward_backward(int64_t sequences);

  Prepared prepared_;
  const RunOptions& options_;
  storage::LocalStore store_;
  telemetry::Journal journal_;
  data::TrainingData data_;
  std::unique_ptr<data::ValidationData> validation_;
  model::ParameterMemory memory_;
  model::Transformer model_;
  Optimizer optimizer_;
  Guard guard_;
  Progress progress_;
  checkpoint::Writer writer_;
};

// Where a run's checkpoints go.
std::filesystem::path checkpoint_folder(const Prepared& prepared);

}  // namespace sauropod::train

// The options of a training run: the sections of a recipe (docs/recipes.md lists them from here).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/recipe.h"
#include "data/training_data.h"
#include "model/parameters.h"
#include "parallel/options.h"

namespace sauropod::train {

struct TokenizerOptions {
  std::string path;
  void declare(config::Section& section);
};

struct DataOptions {
  std::vector<data::CorpusOptions> train;
  std::string valid;            // prefix of the held-out data; empty: none
  bool mask_documents = false;  // attention stays within documents
  void declare(config::Section& section);
};

struct GuardOptions {
  double z_score = 8;        // of the loss over the window; 0: outliers are not skipped
  int64_t window = 128;      // steps
  int64_t max_skipped = 10;  // more skipped steps in a row end the run
  void declare(config::Section& section);
};

struct TrainOptions {
  int64_t steps = 1000;
  int64_t batch_sequences = 64;
  int64_t micro_batch = 0;  // sequences at a time; 0: all that a data-parallel rank takes of a batch
  // [[sequences, steps], …]: batch sizes of the run's first steps; then batch_sequences.
  std::vector<std::vector<int64_t>> batch_ramp;
  double learning_rate = 3e-4;
  double min_learning_rate = 3e-5;
  std::string schedule = "cosine";
  int64_t warmup_tokens = 0;
  int64_t decay_tokens = 0;  // tokens at which the minimum is reached; 0: the whole run
  int64_t stable_tokens = 0; // wsd: tokens at which the decay begins; 0: nine tenths of decay_tokens
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  double z_loss = 0;
  int64_t loss_chunk = 0;  // tokens; 0: ops::default_chunk
  int64_t seed = 1;
  std::string precision = "fp32";
  std::string recompute = "none";
  std::string device = "cpu";
  int threads = 0;  // 0: all processors
  bool deterministic = false;  // cuda
  std::chrono::seconds max_time{0};
  std::chrono::seconds fit_time{0};
  std::string stop_file;
  GuardOptions guard;
  void declare(config::Section& section);
};

struct CheckpointOptions {
  std::string path;            // empty: `checkpoints` in the run's folder
  int64_t every = 0;           // steps; 0: at the end only
  int64_t keep_last = 3;
  int64_t keep_every = 0;
  void declare(config::Section& section);
};

struct EvalOptions {
  int64_t every = 0;       // steps; 0: only at the end
  int64_t sequences = 64;  // windows of the held-out data; 0: all
  void declare(config::Section& section);
};

struct RunOptions {
  model::ModelOptions model;
  TokenizerOptions tokenizer;
  DataOptions data;
  TrainOptions train;
  CheckpointOptions checkpoint;
  EvalOptions eval;
  parallel::ParallelOptions parallel;
  comm::CommunicationOptions communication;

  // Reads all sections; call recipe.finish() before using the values.
  void bind(config::Recipe& recipe);
  // Checks what no single option can: throws base::Error (usage).
  void check() const;

  // Sequences in the batch of step (from 0), and all the sequences of the steps before it.
  int64_t batch_of(int64_t step) const;
  int64_t sequences_before(int64_t step) const;
  int64_t total_tokens() const { return sequences_before(train.steps) * model.context; }
};

// The keys in which a resumed run may differ from the checkpoint without being forced.
bool may_change_on_resume(const std::string& key);

}  // namespace sauropod::train

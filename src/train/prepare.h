// From a recipe to what a run needs to know before anything large is allocated.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "model/parameter_memory.h"
#include "tokenizer/tokenizer.h"
#include "train/options.h"

namespace sauropod::train {

// What the command line gives beside the recipe.
struct RunSettings {
  std::string recipe;             // path
  std::vector<std::string> sets;  // key=value
  std::filesystem::path out;      // the run's folder
  bool resume = false;
  bool force_data = false;  // resume although the data differ
  int64_t ranks = 0;  // that a rehearsal on the meta device is for; 0: as many as hold the model once
  std::string init_from;    // a checkpoint whose weights to begin with; empty: none
};

struct Prepared {
  RunSettings settings;
  config::Recipe recipe;
  RunOptions options;  // resolved: model sizes, precision, micro-batch, threads
  std::optional<tokenizer::Tokenizer> tokenizer;
  model::Precision precision = model::Precision::fp32;
  comm::LaunchEnvironment environment;  // which rank this process is
  int64_t ranks = 1;                    // of the run, or of the one that is rehearsed
};

// Reads the recipe and the tokenizer, and checks everything that can be checked without data. Throws
// base::Error (usage).
Prepared prepare(const RunSettings& settings);

}  // namespace sauropod::train

// A model from a checkpoint, ready to evaluate or generate.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::eval {

struct LoadedModel {
  std::string path;  // what messages call the checkpoint
  int64_t step = 0;
  model::ModelOptions options;
  tokenizer::Tokenizer tokenizer;
  std::unique_ptr<model::ParameterMemory> memory;  // without gradients
  std::unique_ptr<model::Transformer> transformer;
};

// "auto" is bf16 where the processor computes in it, fp32 elsewhere; otherwise as parse_precision().
model::Precision choose_precision(std::string_view name);

// Opens what checkpoint::Reader::open does (a checkpoint, a folder of them, the folder of a run) and reads
// its weights into memory of the CPU. Damaged checkpoints that were passed over are logged. Throws
// base::Error.
LoadedModel load(const std::string& path, std::string_view precision = "auto");

}  // namespace sauropod::eval

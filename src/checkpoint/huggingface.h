// How the parameter table maps to the models of Hugging Face `transformers`: jurassic to
// GPT2LMHeadModel, llama to LlamaForCausalLM. docs/checkpoints.md has the table.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/parameters.h"

namespace sauropod::checkpoint {

// One tensor of the exported model: the sources stacked along their first dimension (q, k, v become
// c_attn), then transposed if it is the weight of a Conv1D, which has [inputs, outputs].
struct ForeignTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::string> sources;  // parameters of the table
  bool transpose = false;
};

// In the order of the table. Throws base::Error naming a parameter that the model there has no place
// for, and for shapes that it can't have.
std::vector<ForeignTensor> huggingface_tensors(const model::ModelOptions& options);

// config.json. `dtype` is "F32", "F64" or "BF16"; id 0 begins and ends documents.
nlohmann::json huggingface_config(const model::ModelOptions& options, const std::string& dtype);

}  // namespace sauropod::checkpoint

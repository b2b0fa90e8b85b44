// A checkpoint as a folder that Hugging Face `transformers` loads: config.json, the weights as
// safetensors, tokenizer.json, tokenizer_config.json, generation_config.json.
//
// At most one tensor is in memory at a time. Above `shard_bytes` the weights are divided among files
// model-00001-of-0000N.safetensors with model.safetensors.index.json. Everything is written into a
// folder "….partial" beside the one asked for, which takes the name at the end, so a folder that is
// there is whole; a failure removes the partial one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/reader.h"

namespace sauropod::checkpoint {

struct HuggingFaceOptions {
  std::string dtype = "F32";  // of the weights: "F32", "BF16", "F64"
  uint64_t shard_bytes = 5'000'000'000;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes of weights; may be empty
};

// `tokenizer_json` is the content of tokenizer.json (tokenizer/export_huggingface.h). `folder` must
// not exist, or be empty. Throws base::Error.
void export_huggingface(const Reader& reader, const std::string& tokenizer_json,
                        const std::filesystem::path& folder,
                        const HuggingFaceOptions& options = {});

}  // namespace sauropod::checkpoint

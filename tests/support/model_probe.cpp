// model_probe DIR FAMILY TOKENIZER VOCABULARY: a small model with random weights, its loss, logits and
// gradients on one batch of random tokens, for comparison with other implementations.
//
// Writes DIR/checkpoint, a checkpoint of step 1, and DIR/probe.safetensors: "tokens" [sequences, T + 1]
// int32, "loss" [] (the mean over the T predictions of every sequence), "logits" [sequences · T,
// vocabulary] and "gradient/PARAMETER" for every parameter, float.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "model/options_json.h"
#include "checkpoint/writer.h"
#include "formats/safetensors.h"
#include "model/transformer.h"
#include "storage/local_store.h"

namespace sauropod {
namespace {

constexpr int64_t kSequences = 3, kLength = 70;

model::ModelOptions options_of(const std::string& family, int64_t vocabulary) {
  const bool jurassic = family == "jurassic";
  model::ModelOptions options;
  options.family = family;
  options.layers = 3;
  options.hidden = 48;
  options.heads = 4;
  options.kv_heads = jurassic ? 4 : 2;
  options.head_size = 12;
  options.mlp_hidden = jurassic ? 192 : 136;
  options.context = 96;
  options.vocabulary = vocabulary;
  options.tied_embeddings = jurassic;
  options.resolve(0);
  return options;
}

// What the table starts at, and on top of it noise that makes scores, biases and scales matter.
void randomize(model::ParameterMemory& memory) {
  memory.initialize(1);
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const model::Parameter& p = memory.table()[i];
    const uint64_t key = base::random_key(2, p.name);
    auto* values = memory.view(memory.weights(), i).data_ptr<float>();
    const double deviation = p.shape.size() == 2 ? 0.1 : 0.2;
    for (int64_t j = 0; j < p.size(); ++j)
      values[j] += static_cast<float>(deviation * base::random_normal(key, static_cast<uint64_t>(j)));
  }
}

void write_checkpoint(const std::filesystem::path& folder, const model::ParameterMemory& memory,
                      const model::ModelOptions& options, const std::string& tokenizer) {
  checkpoint::Snapshot snapshot;
  snapshot.step = 1;
  snapshot.training = {{"tokens", 0}};
  snapshot.model = model::to_json(options);
  snapshot.tokenizer_file = base::read_file(tokenizer);
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const model::Parameter& p = memory.table()[i];
    snapshot.boxes.push_back({p.name, "master", "F32", p.shape,
                              std::vector<int64_t>(p.shape.size(), 0), p.shape,
                              memory.view(memory.weights(), i).data_ptr()});
  }
  storage::LocalStore store(folder);
  checkpoint::Writer(store).write(snapshot);
}

void write_tensors(const std::filesystem::path& path,
                   const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<formats::SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({.name = name,
                       .dtype = tensor.scalar_type() == at::kInt ? "I32" : "F32",
                       .shape = tensor.sizes().vec()});
  std::string file = formats::safetensors_header(entries);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.contiguous();
    file.append(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  }
  base::write_file_atomically(path, file);
}

void probe(const std::filesystem::path& folder, const std::string& family,
           const std::string& tokenizer, int64_t vocabulary) {
  const model::ModelOptions options = options_of(family, vocabulary);
  model::ParameterMemory memory(model::parameter_table(options), model::Precision::fp32, at::kCPU,
                                true);
  randomize(memory);
  write_checkpoint(folder / "checkpoint", memory, options, tokenizer);

  const at::Tensor tokens = at::empty({kSequences, kLength + 1}, at::kInt);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data_ptr<int32_t>()[i] = static_cast<int32_t>(
        base::random_bits(3, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocabulary));
  const model::Batch batch{tokens.narrow(1, 0, kLength).contiguous(),
                           tokens.narrow(1, 1, kLength).contiguous(), {}};
  const model::Transformer model(options, memory);
  const ops::CrossEntropy loss =
      model.loss(batch, {.scale = 1.0 / (kSequences * kLength), .chunk = 64});
  torch::autograd::backward({loss.loss});

  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, at::Tensor>> tensors{
      {"tokens", tokens}, {"loss", loss.loss}, {"logits", model.logits(model.states(batch))}};
  for (size_t i = 0; i < memory.table().size(); ++i)
    tensors.emplace_back("gradient/" + memory.table()[i].name,
                         memory.view(memory.gradients(), i));
  write_tensors(folder / "probe.safetensors", tensors);
}

}  // namespace
}  // namespace sauropod

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "model_probe DIR FAMILY TOKENIZER VOCABULARY\n"), 2;
  try {
    sauropod::probe(argv[1], argv[2], argv[3], std::stoll(argv[4]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_probe: %s\n", error.what());
    return 1;
  }
}

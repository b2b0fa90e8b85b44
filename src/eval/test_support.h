// What the tests of eval and infer share: a temporary folder, and models small enough to reason about.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "checkpoint/writer.h"
#include "formats/indexed_dataset.h"
#include "model/options_json.h"
#include "model/transformer.h"
#include "storage/local_store.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace sauropod::eval {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sauropod-eval-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) base::fail("cannot make a folder for the test");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Two layers, 32 wide, four heads (llama: two of keys and values). The initial weights are made ten times
// larger, so that what the model says depends on what it reads.
inline model::ModelOptions tiny_options(const std::string& family, int64_t vocabulary,
                                        int64_t context) {
  model::ModelOptions options;
  options.family = family;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.kv_heads = family == "llama" ? 2 : 4;
  options.context = context;
  options.vocabulary = vocabulary;
  options.tied_embeddings = family != "llama";
  options.resolve(0);
  return options;
}

struct TinyModel {
  TinyModel(const std::string& family, model::Precision precision, int64_t vocabulary,
            int64_t context, bool gradients = false)
      : options(tiny_options(family, vocabulary, context)),
        memory(enlarged(model::parameter_table(options)), precision, at::kCPU, gradients),
        transformer(initialized(options, memory)) {}

  static std::vector<model::Parameter> enlarged(std::vector<model::Parameter> table) {
    for (model::Parameter& parameter : table) parameter.deviation *= 10;
    return table;
  }
  static model::Transformer initialized(const model::ModelOptions& options,
                                        model::ParameterMemory& memory) {
    memory.initialize(17);
    return {options, memory};
  }

  model::ModelOptions options;
  model::ParameterMemory memory;
  model::Transformer transformer;
};

// The bytes and a few words.
inline tokenizer::Tokenizer tiny_tokenizer() {
  tokenizer::FileContent content;
  content.byte_costs.assign(256, 8U << 20);
  for (const char* item : {" the", " of the", "the", "\xc3\xa9"})
    content.items.push_back({item, 3U << 20});
  return tokenizer::Tokenizer::parse(tokenizer::write_file(content, nlohmann::json::object()),
                                     "test");
}

// Writes a checkpoint of step 7.
inline void save(const TinyModel& tiny, const tokenizer::Tokenizer& tokenizer,
                 const std::string& folder) {
  checkpoint::Snapshot snapshot;
  snapshot.step = 7;
  snapshot.training = nlohmann::json::object();
  snapshot.model = model::to_json(tiny.options);
  snapshot.tokenizer_file = tokenizer.file();
  for (size_t i = 0; i < tiny.memory.table().size(); ++i) {
    const model::Parameter& parameter = tiny.memory.table()[i];
    snapshot.boxes.push_back({parameter.name, "master", "F32", parameter.shape,
                              std::vector<int64_t>(parameter.shape.size(), 0), parameter.shape,
                              tiny.memory.view(tiny.memory.weights(), i).data_ptr()});
  }
  storage::LocalStore store(folder);
  checkpoint::Writer(store).write(snapshot);
}

}  // namespace sauropod::eval

// Exports to Hugging Face: names, shapes, transposes, shards, refusals. That transformers loads the
// result is shown by tests/checkpoint_export_test.py.
#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "checkpoint/export_huggingface.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/test_support.h"
#include "checkpoint/writer.h"
#include "formats/safetensors.h"
#include "model/options_json.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {
namespace {

namespace fs = std::filesystem;

model::ModelOptions options_of(const std::string& family) {
  model::ModelOptions options;
  options.family = family;
  options.layers = 2;
  options.hidden = 8;
  options.heads = 4;
  options.kv_heads = family == "llama" ? 2 : 4;
  options.head_size = 2;
  options.mlp_hidden = 12;
  options.context = 16;
  options.vocabulary = 40;
  options.tied_embeddings = family == "jurassic";
  return options;
}

Snapshot snapshot_of(const model::ModelOptions& options) {
  Snapshot snapshot;
  snapshot.step = 1;
  snapshot.model = model::to_json(options);
  auto values = std::make_shared<std::vector<std::vector<float>>>();
  for (const model::Parameter& parameter : model::parameter_table(options)) {
    values->push_back(tensor_of(parameter.name, "master", 1, parameter.size()));
    snapshot.boxes.push_back({parameter.name, "master", "F32", parameter.shape,
                              Dimensions(parameter.shape.size(), 0), parameter.shape,
                              values->back().data()});
  }
  snapshot.owner = values;
  return snapshot;
}

class ExportTest : public ::testing::Test {
 protected:
  // Exports what the snapshot holds to out().
  void run(const Snapshot& snapshot, const HuggingFaceOptions& options = {}) {
    storage::LocalStore store(folder_.path() / "checkpoints");
    Writer(store).write(snapshot);
    export_huggingface(Reader(store, 1), "{}", out(), options);
  }
  fs::path out() const { return folder_.path() / "out"; }

  std::string message(const Snapshot& snapshot, const HuggingFaceOptions& options = {}) {
    try {
      run(snapshot, options);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
};

float value_at(const formats::SafetensorsFile& file, const std::string& name, int64_t index) {
  float value;
  std::memcpy(&value, file.data(file.find(name)).data() + index * 4, 4);
  return value;
}

TEST_F(ExportTest, JurassicBecomesGpt2) {
  const model::ModelOptions options = options_of("jurassic");
  run(snapshot_of(options));
  const formats::SafetensorsFile file(out() / "model.safetensors");
  EXPECT_EQ(file.header().tensors.size(), 2U + 2 * 12 + 2);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  const auto& attention = file.find("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(attention.shape, (std::vector<int64_t>{8, 24}));
  const char* parts[] = {"query", "key", "value"};
  for (int64_t input = 0; input < 8; ++input)
    for (int64_t output = 0; output < 24; ++output) {
      const std::string source = std::string("layers.1.attention.") + parts[output / 8];
      ASSERT_EQ(value_at(file, attention.name, input * 24 + output),
                element_of(source + ".weight", "master", 1, output % 8 * 8 + input));
    }
  for (int64_t output = 0; output < 24; ++output)
    ASSERT_EQ(value_at(file, "transformer.h.1.attn.c_attn.bias", output),
              element_of(std::string("layers.1.attention.") + parts[output / 8] + ".bias", "master",
                         1, output % 8));
  EXPECT_EQ(file.find("transformer.h.0.mlp.c_fc.weight").shape, (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(value_at(file, "transformer.h.0.mlp.c_proj.weight", 3 * 8 + 5),
            element_of("layers.0.mlp.down.weight", "master", 1, 5 * 12 + 3));
  EXPECT_EQ(value_at(file, "transformer.wte.weight", 17),
            element_of("embedding.token.weight", "master", 1, 17));
  const auto config = nlohmann::json::parse(base::read_file(out() / "config.json"));
  EXPECT_EQ(config.at("n_inner"), 12);
  EXPECT_EQ(config.at("activation_function"), "gelu_new");
  EXPECT_EQ(config.at("tie_word_embeddings"), true);
  EXPECT_EQ(base::read_file(out() / "tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(folder_.path() / "out.partial"));
}

TEST_F(ExportTest, LlamaCopiesThrough) {
  run(snapshot_of(options_of("llama")));
  const formats::SafetensorsFile file(out() / "model.safetensors");
  EXPECT_EQ(file.find("model.layers.1.self_attn.k_proj.weight").shape,
            (std::vector<int64_t>{4, 8}));
  for (int64_t i = 0; i < 32; ++i)
    ASSERT_EQ(value_at(file, "model.layers.1.self_attn.k_proj.weight", i),
              element_of("layers.1.attention.key.weight", "master", 1, i));
  EXPECT_EQ(value_at(file, "lm_head.weight", 9), element_of("head.weight", "master", 1, 9));
  EXPECT_EQ(file.header().tensors.size(), 3U + 2 * 9);
}

TEST_F(ExportTest, ShardsHaveAnIndex) {
  uint64_t done = 0, total = 1;
  run(snapshot_of(options_of("jurassic")),
      {.dtype = "BF16", .shard_bytes = 500, .progress = [&](uint64_t d, uint64_t t) {
         EXPECT_GT(d, done);
         done = d;
         total = t;
       }});
  EXPECT_EQ(done, total);
  const auto index =
      nlohmann::json::parse(base::read_file(out() / "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), total);
  std::set<std::string> files;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    files.insert(file.get<std::string>());
    const formats::SafetensorsFile shard(out() / file.get<std::string>());
    EXPECT_EQ(shard.find(name).dtype, "BF16");
  }
  EXPECT_GT(files.size(), 3U);
  EXPECT_FALSE(fs::exists(out() / "model.safetensors"));
}

TEST_F(ExportTest, NamesTheParameterThatDoesNotFit) {
  Snapshot snapshot = snapshot_of(options_of("jurassic"));
  const Snapshot good = snapshot;
  snapshot.boxes.erase(snapshot.boxes.begin() + 4);
  EXPECT_NE(message(snapshot).find("lacks the parameter " + good.boxes[4].parameter),
            std::string::npos);
  snapshot = good;
  snapshot.boxes[4].parameter = "layers.0.attention.gate.weight";
  EXPECT_NE(message(snapshot), "");
  snapshot = good;
  snapshot.boxes.push_back(good.boxes[4]);
  snapshot.boxes.back().parameter = "layers.0.adapter.weight";
  EXPECT_NE(message(snapshot).find("layers.0.adapter.weight"), std::string::npos);
  snapshot = good;
  std::swap(snapshot.boxes[0].full_shape[0], snapshot.boxes[0].full_shape[1]);
  std::swap(snapshot.boxes[0].shape[0], snapshot.boxes[0].shape[1]);
  EXPECT_NE(message(snapshot).find("embedding.token.weight"), std::string::npos);
  model::ModelOptions narrow = options_of("jurassic");
  narrow.head_size = 4;
  EXPECT_NE(message(snapshot_of(narrow)).find("GPT2LMHeadModel needs"), std::string::npos);
  snapshot = good;
  snapshot.model.erase("layers");
  EXPECT_NE(message(snapshot).find("'layers'"), std::string::npos);
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(ExportTest, FailuresLeaveNothing) {
  const Snapshot snapshot = snapshot_of(options_of("jurassic"));
  const HuggingFaceOptions failing{.progress = [](uint64_t done, uint64_t total) {
    if (done > total / 2) base::fail("stopped half-way");
  }};
  EXPECT_EQ(message(snapshot, failing), "stopped half-way");
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_FALSE(fs::exists(folder_.path() / "out.partial"));
  fs::create_directories(out());
  run(snapshot);  // an empty folder may be there
  EXPECT_NE(message(snapshot).find("exists already"), std::string::npos);
}

}  // namespace
}  // namespace sauropod::checkpoint

// make_checkpoint DIR FAMILY TOKENIZER VOCABULARY: writes a checkpoint of a tiny model with random
// weights, of step 5, for tests of what reads checkpoints.
#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "checkpoint/writer.h"
#include "model/options_json.h"
#include "storage/local_store.h"

int main(int argc, char** argv) {
  using namespace sauropod;
  if (argc != 5) return std::fprintf(stderr, "make_checkpoint DIR FAMILY TOKENIZER VOCABULARY\n"), 2;
  try {
    const bool jurassic = std::string_view(argv[2]) == "jurassic";
    model::ModelOptions options;
    options.family = argv[2];
    options.layers = 2;
    options.hidden = 24;
    options.heads = 4;
    options.kv_heads = jurassic ? 4 : 2;
    options.head_size = 6;
    options.mlp_hidden = 40;
    options.context = 32;
    options.vocabulary = std::stoll(argv[4]);
    options.tied_embeddings = jurassic;

    checkpoint::Snapshot snapshot;
    snapshot.step = 5;
    snapshot.model = model::to_json(options);
    snapshot.training = {{"tokens", 12345}};
    snapshot.tokenizer_file = base::read_file(argv[3]);
    auto values = std::make_shared<std::vector<std::vector<float>>>();
    for (const char* kind : {"master", "moment1"})
      for (const model::Parameter& parameter : model::parameter_table(options)) {
        std::vector<float>& tensor =
            values->emplace_back(static_cast<size_t>(parameter.size()));
        const uint64_t key = base::random_key(1, parameter.name + kind);
        for (size_t i = 0; i < tensor.size(); ++i)
          tensor[i] = static_cast<float>(0.2 * base::random_normal(key, i));
        snapshot.boxes.push_back({parameter.name, kind, "F32", parameter.shape,
                                  std::vector<int64_t>(parameter.shape.size(), 0),
                                  parameter.shape, tensor.data()});
      }
    storage::LocalStore store(argv[1]);
    checkpoint::Writer(store, {}, {.file_bytes = 20000}).write(snapshot);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_checkpoint: %s\n", error.what());
    return 1;
  }
}

#include "eval/load.h"

#include "base/error.h"
#include "checkpoint/reader.h"
#include "model/options_json.h"
#include "ops/pointwise_kernel.h"
#include "telemetry/log.h"

namespace sauropod::eval {
namespace {

void read_parameters(const checkpoint::Reader& reader, model::ParameterMemory& memory) {
  const char* dtype = memory.precision() == model::Precision::fp64 ? "F64" : "F32";
  const auto& table = memory.table();
  for (size_t i = 0; i < table.size(); ++i) {
    const model::Parameter& parameter = table[i];
    const checkpoint::StoredTensor* stored = reader.manifest().find(parameter.name, "master");
    if (stored == nullptr)
      base::fail("{} lacks the weights of {}", reader.path(), parameter.name);
    if (stored->shape != parameter.shape)
      base::fail("{}: the shape of {} is not that of the model it describes", reader.path(),
                 parameter.name);
    memory.fill_master(i, [&](void* out) {
      reader.read(parameter.name, "master", dtype, checkpoint::Dimensions(parameter.shape.size(), 0),
                  parameter.shape, out);
    });
  }
}

}  // namespace

model::Precision choose_precision(std::string_view name) {
  if (name != "auto") return model::parse_precision(name);
  return ops::have_avx512_bf16() ? model::Precision::bf16 : model::Precision::fp32;
}

LoadedModel load(const std::string& path, std::string_view precision) {
  const model::Precision chosen = choose_precision(precision);
  std::vector<std::string> complaints;
  const auto reader = checkpoint::Reader::open(path, &complaints);
  for (const std::string& complaint : complaints) log::warn("{}", complaint);

  model::ModelOptions options = model::options_from_json(reader.manifest().model, reader.path());
  auto tokenizer =
      tokenizer::Tokenizer::parse(reader.tokenizer_file(), reader.path() + ": the tokenizer");
  options.resolve(tokenizer.size());
  auto memory = std::make_unique<model::ParameterMemory>(model::parameter_table(options), chosen,
                                                         at::kCPU, /*gradients=*/false);
  read_parameters(reader, *memory);
  auto transformer = std::make_unique<model::Transformer>(options, *memory);
  return {reader.path(),        reader.manifest().step, options,
          std::move(tokenizer), std::move(memory),      std::move(transformer)};
}

}  // namespace sauropod::eval

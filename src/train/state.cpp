#include "train/state.h"

#include <ATen/ops/empty_like.h>

#include "base/error.h"
#include "model/options_json.h"

namespace sauropod::train {
namespace {

const char* stored_type(at::ScalarType type) {
  return type == at::kDouble ? "F64" : "F32";
}

// One parameter of one kind, whole, into memory of this type.
void read_parameter(const checkpoint::Reader& reader, const model::Parameter& parameter,
                    const std::string& kind, at::ScalarType type, void* out) {
  const checkpoint::StoredTensor* stored = reader.manifest().find(parameter.name, kind);
  if (stored == nullptr)
    base::fail("{} has no {} of {}: it is a checkpoint of another model", reader.path(), kind,
               parameter.name);
  if (stored->shape != parameter.shape)
    base::fail("{}: {} has shape [{}], the model's is [{}]", reader.path(), parameter.name,
               fmt::join(stored->shape, ", "), fmt::join(parameter.shape, ", "));
  reader.read(parameter.name, kind, stored_type(type),
              checkpoint::Dimensions(parameter.shape.size(), 0), parameter.shape, out);
}

void read_moments(const checkpoint::Reader& reader, const model::ParameterMemory& memory,
                  const std::string& kind, const at::Tensor& flat) {
  const at::Tensor host = flat.device().is_cpu() ? flat : at::empty_like(flat, at::kCPU);
  for (size_t i = 0; i < memory.table().size(); ++i)
    read_parameter(reader, memory.table()[i], kind, host.scalar_type(),
                   memory.view(host, i).data_ptr());
  if (!flat.device().is_cpu()) flat.copy_(host);
}

}  // namespace

checkpoint::Snapshot take_snapshot(const model::ParameterMemory& memory, const Optimizer& optimizer,
                                   const Guard& guard, const Progress& progress,
                                   const nlohmann::json& recipe, const nlohmann::json& data,
                                   const model::ModelOptions& model,
                                   const std::string& tokenizer_file) {
  checkpoint::Snapshot snapshot;
  snapshot.step = progress.step;
  snapshot.training = {{"step", progress.step},
                       {"sequences", progress.sequences},
                       {"tokens", progress.tokens},
                       {"seconds", progress.seconds},
                       {"updates", optimizer.updates()},
                       {"guard", guard.state()},
                       {"recipe", recipe},
                       {"data", data}};
  snapshot.model = model::to_json(model);
  snapshot.tokenizer_file = tokenizer_file;

  struct Copies {
    std::vector<at::Tensor> flat;
  };
  auto copies = std::make_shared<Copies>();
  const auto copy_of = [](const at::Tensor& flat) {
    return flat.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  };
  const std::pair<const char*, at::Tensor> kinds[] = {
      {"master", memory.copy_master(0, memory.flat_size())},
      {"moment1", copy_of(optimizer.moment1())},
      {"moment2", copy_of(optimizer.moment2())}};
  for (const auto& [kind, copy] : kinds) {
    copies->flat.push_back(copy);
    for (size_t i = 0; i < memory.table().size(); ++i) {
      const model::Parameter& parameter = memory.table()[i];
      checkpoint::Box box;
      box.parameter = parameter.name;
      box.kind = kind;
      box.dtype = stored_type(copy.scalar_type());
      box.full_shape = box.shape = parameter.shape;
      box.offset.assign(parameter.shape.size(), 0);
      box.data = memory.view(copy, i).data_ptr();
      snapshot.boxes.push_back(std::move(box));
    }
  }
  snapshot.owner = copies;
  return snapshot;
}

void restore(const checkpoint::Reader& reader, model::ParameterMemory& memory, Optimizer& optimizer,
             Guard& guard, Progress& progress) {
  read_moments(reader, memory, "moment1", optimizer.moment1());
  read_moments(reader, memory, "moment2", optimizer.moment2());
  restore_weights(reader, memory);
  const nlohmann::json& training = reader.manifest().training;
  try {
    progress.step = training.at("step").get<int64_t>();
    progress.sequences = training.at("sequences").get<int64_t>();
    progress.tokens = training.at("tokens").get<int64_t>();
    progress.seconds = training.at("seconds").get<double>();
    optimizer.set_updates(training.at("updates").get<int64_t>());
    guard.restore(training.at("guard"));
  } catch (const nlohmann::json::exception& error) {
    base::fail("{}: the training state can't be read: {}", reader.path(), error.what());
  }
}

void restore_weights(const checkpoint::Reader& reader, model::ParameterMemory& memory) {
  for (size_t i = 0; i < memory.table().size(); ++i)
    memory.fill_master(i, [&](void* out) {
      read_parameter(reader, memory.table()[i], "master", memory.master_type(), out);
    });
}

}  // namespace sauropod::train

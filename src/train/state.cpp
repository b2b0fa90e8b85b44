#include "train/state.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "checkpoint/flat.h"
#include "model/options_json.h"

namespace sauropod::train {
namespace {

const char* stored_type(at::ScalarType type) { return type == at::kDouble ? "F64" : "F32"; }

checkpoint::FlatEntry entry_of(const model::ParameterMemory& memory, size_t index) {
  const model::Parameter& parameter = memory.table()[index];
  return {parameter.name,
          {parameter.whole_shape(), {parameter.begin(), parameter.shape}},
          memory.offset(index)};
}

// What a rank without any of a parameter has nothing of.
bool empty(const model::Parameter& parameter) { return parameter.size() == 0; }

void read_moment(const checkpoint::Reader& reader, const model::ParameterMemory& memory,
                 const std::string& kind, const std::vector<parallel::Piece>& pieces,
                 const at::Tensor& state) {
  std::vector<checkpoint::FlatEntry> layout;
  for (size_t i = 0; i < memory.table().size(); ++i)
    if (!empty(memory.table()[i])) layout.push_back(entry_of(memory, i));
  for (const parallel::Piece& piece : pieces) {
    const at::Tensor part = state.narrow(0, piece.state, piece.size());
    const at::Tensor host =
        part.device().is_cpu() ? part : at::empty(part.sizes(), part.options().device(at::kCPU));
    checkpoint::read_range(reader, kind, stored_type(host.scalar_type()), layout,
                           {piece.begin, piece.end}, host.data_ptr());
    if (!part.device().is_cpu()) part.copy_(host);
  }
}

}  // namespace

checkpoint::Snapshot take_snapshot(const parallel::DistributedModel& model,
                                   const parallel::Optimizer& optimizer, const Guard& guard,
                                   const Progress& progress, const nlohmann::json& recipe,
                                   const nlohmann::json& data, const model::ModelOptions& options,
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
  snapshot.model = model::to_json(options);
  snapshot.tokenizer_file = tokenizer_file;

  const model::ParameterMemory& memory = model.memory();
  std::vector<checkpoint::FlatEntry> layout;
  for (size_t i = 0; i < memory.table().size(); ++i)
    if (model.placement().held[i].counted && !empty(memory.table()[i]))
      layout.push_back(entry_of(memory, i));
  auto copies = std::make_shared<std::vector<at::Tensor>>();
  for (const parallel::Piece& piece : optimizer.saved_pieces()) {
    const auto add = [&](const char* kind, const at::Tensor& copy) {
      copies->push_back(copy);
      checkpoint::add_range(snapshot, kind, stored_type(copy.scalar_type()), layout,
                            {piece.begin, piece.end}, copy.data_ptr());
    };
    const auto copy_of = [&](const at::Tensor& state) {
      return state.narrow(0, piece.state, piece.size())
          .to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    };
    add("master", memory.copy_master(piece.begin, piece.end));
    add("moment1", copy_of(optimizer.moment1()));
    add("moment2", copy_of(optimizer.moment2()));
  }
  snapshot.owner = copies;
  return snapshot;
}

void restore(const checkpoint::Reader& reader, model::ParameterMemory& memory,
             parallel::Optimizer& optimizer, Guard& guard, Progress& progress) {
  read_moment(reader, memory, "moment1", optimizer.pieces(), optimizer.moment1());
  read_moment(reader, memory, "moment2", optimizer.pieces(), optimizer.moment2());
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
  for (size_t i = 0; i < memory.table().size(); ++i) {
    const model::Parameter& parameter = memory.table()[i];
    if (empty(parameter)) continue;
    const checkpoint::StoredTensor* stored = reader.manifest().find(parameter.name, "master");
    if (stored == nullptr)
      base::fail("{} has no master of {}: it is a checkpoint of another model", reader.path(),
                 parameter.name);
    if (stored->shape != parameter.whole_shape())
      base::fail("{}: {} has shape [{}], the model's is [{}]", reader.path(), parameter.name,
                 fmt::join(stored->shape, ", "), fmt::join(parameter.whole_shape(), ", "));
    memory.fill_master(i, [&](void* out) {
      reader.read(parameter.name, "master", stored_type(memory.master_type()), parameter.begin(),
                  parameter.shape, out);
    });
  }
}

}  // namespace sauropod::train

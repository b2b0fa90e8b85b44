#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <set>

#include "base/error.h"
#include "checkpoint/newest.h"
#include "model/options_json.h"
#include "telemetry/log.h"
#include "train/batch.h"
#include "train/schedule.h"

namespace sauropod::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

at::Device device_of(const TrainOptions& options) {
  if (options.device == "cuda" && !at::hasCUDA())
    base::fail_usage("train.device is cuda, but this build of libtorch or this machine has no CUDA "
                     "device: see docs/gpu.md, or use --set train.device=cpu");
  return at::Device(options.device);
}

comm::MeshOptions mesh_options(const parallel::ParallelOptions& options) {
  return {static_cast<int>(options.tensor), static_cast<int>(options.pipeline)};
}

parallel::AdamOptions adam_options(const TrainOptions& options) {
  return {options.beta1, options.beta2, options.epsilon, options.weight_decay, options.clip};
}

// What must be the same in a resumed run.
void require_same_run(const checkpoint::Reader& reader, const Prepared& prepared,
                      const nlohmann::json& data) {
  const auto& manifest = reader.manifest();
  const nlohmann::json model = model::to_json(prepared.options.model);
  std::string different;
  for (const auto& [key, value] : model.items())
    if (!manifest.model.contains(key) || manifest.model.at(key) != value)
      different += fmt::format("\n  model.{} is {}, in the checkpoint {}", key, value.dump(),
                               manifest.model.value(key, nlohmann::json()).dump());
  if (reader.tokenizer_file() != prepared.tokenizer->file())
    different += fmt::format("\n  the tokenizer {} is another one ({}, in the checkpoint {})",
                             prepared.options.tokenizer.path, prepared.tokenizer->hash(),
                             manifest.tokenizer_hash);
  for (const config::Difference& difference :
       config::differences(prepared.recipe.to_json(), manifest.training.at("recipe")))
    if (!may_change_on_resume(difference.key) && !difference.key.starts_with("model."))
      different += fmt::format("\n  {} is {}, in the checkpoint {}", difference.key,
                               difference.here, difference.there);
  if (!different.empty())
    base::fail_usage("cannot resume from {}: the run is not the same:{}\nTo begin another run with "
                     "these weights use --init-from and another --out.",
                     reader.path(), different);
  const std::string data_changed = data::data_difference(manifest.training.at("data"), data);
  if (data_changed.empty()) return;
  if (!prepared.settings.force_data)
    base::fail_usage("cannot resume from {}: {}. The samples would not be those the run would have "
                     "seen; --force-data goes on all the same.",
                     reader.path(), data_changed);
  log::warn("the data differ from the checkpoint's, as --force-data allows: {}", data_changed);
}

}  // namespace

std::filesystem::path checkpoint_folder(const Prepared& prepared) {
  const std::string& path = prepared.options.checkpoint.path;
  return path.empty() ? prepared.settings.out / "checkpoints" : std::filesystem::path(path);
}

Trainer::Trainer(const Prepared& prepared, comm::World& world)
    : prepared_(prepared),
      options_(prepared_.options),
      mesh_(world, mesh_options(options_.parallel)),
      peers_(mesh_.world()),
      store_(checkpoint_folder(prepared_)),
      data_(options_.data.train, options_.model.context, static_cast<uint64_t>(options_.train.seed),
            options_.model.vocabulary),
      model_(options_.model, options_.parallel,
             parallel::place(options_.model, options_.parallel, mesh_.layout(),
                             mesh_.coordinates()),
             prepared_.precision, device_of(options_.train),
             model::parse_recompute(options_.train.recompute), mesh_),
      optimizer_(model_.memory(), model_.placement().held, mesh_, options_.parallel.zero,
                 adam_options(options_.train)),
      guard_(options_.train.guard),
      writer_(store_, {options_.checkpoint.keep_last, options_.checkpoint.keep_every}, {}, &peers_) {
  if (mesh_.world().rank() == 0) journal_.emplace(prepared_.settings.out / "events.jsonl");
  at::set_num_threads(options_.train.threads);
  if (options_.train.deterministic)
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  data_.check_tokenizer(prepared_.tokenizer->hash());
  if (!options_.data.valid.empty())
    validation_ = std::make_unique<data::ValidationData>(
        options_.data.valid, options_.model.context, eval::item_bytes(*prepared_.tokenizer),
        prepared_.tokenizer->end_of_document());
  begin();
}

int64_t Trainer::parameters() const {
  return model::parameter_count(model::parameter_table(options_.model));
}

void Trainer::event(std::string_view name, const nlohmann::json& fields) {
  if (journal_) journal_->event(name, fields);
}

void Trainer::begin() {
  if (prepared_.settings.resume && resume()) return;
  begin_anew();
}

void Trainer::begin_anew() {
  // Rank 0 looks, so that all decide alike.
  checkpoint::decide(peers_, [&] {
    std::vector<std::string> complaints;
    const auto reader = checkpoint::Reader::newest_intact(store_, &complaints);
    if (!prepared_.settings.resume && (reader || !complaints.empty()))
      base::fail_usage("{} already holds checkpoints{}: --resume goes on with that run, another "
                       "--out begins a new one",
                       store_.describe(""),
                       reader ? fmt::format(" up to step {}", reader->manifest().step) : "");
    return std::string();
  });
  model_.memory().initialize(static_cast<uint64_t>(options_.train.seed));
  if (prepared_.settings.init_from.empty()) return;
  std::vector<std::string> complaints;
  const auto source = checkpoint::Reader::open(prepared_.settings.init_from, &complaints);
  if (source.tokenizer_file() != prepared_.tokenizer->file())
    base::fail_usage("{} was trained with another tokenizer than {}: use its own, {}tokenizer.json",
                     source.path(), options_.tokenizer.path, source.path());
  restore_weights(source, model_.memory());
  event("initialised", {{"from", source.path()}});
}

bool Trainer::resume() {
  std::vector<std::string> complaints;
  const auto reader = checkpoint::load_newest(
      store_, peers_,
      [&](const checkpoint::Reader& candidate) {
        require_same_run(candidate, prepared_, data_.describe());
        restore(candidate, model_.memory(), optimizer_, guard_, progress_);
      },
      &complaints);
  for (const std::string& complaint : complaints) {
    if (!journal_) break;
    log::warn("{}", complaint);
    event("checkpoint_passed_over", {{"why", complaint}});
  }
  if (!reader) {
    // What is left of them may still be mended, and a new beginning would write over it.
    if (!complaints.empty())
      base::fail("{} holds checkpoints and none of them is intact: {}\nPut back a copy of one of them; or "
                 "begin anew with another --out, or after removing that folder.",
                 store_.describe(""), fmt::join(complaints, "; "));
    log::info("no checkpoint in {}: beginning at step 0", store_.describe(""));
    return false;
  }
  event("resumed", {{"step", progress_.step}, {"checkpoint", reader->path()}});
  log::info("going on from {} (step {}, {} tokens)", reader->path(), progress_.step,
            progress_.tokens);
  return true;
}

// The loss of the next `sequences` samples in nats per token; the gradients are added to.
double Trainer::forward_backward(int64_t sequences) {
  ops::CrossEntropyOptions loss_options;
  loss_options.scale = 1.0 / static_cast<double>(sequences * options_.model.context);
  loss_options.z_loss = options_.train.z_loss;
  loss_options.chunk = options_.train.loss_chunk;
  const parallel::Sequences mine =
      parallel::sequences_of(sequences, mesh_.data().size(), mesh_.data().rank());
  const int64_t size = options_.train.micro_batch;
  const double loss = model_.forward_backward(
      (mine.count + size - 1) / size,
      [&](int64_t microbatch) {
        const int64_t begin = microbatch * size;
        return make_batch(data_, progress_.sequences + mine.first + begin,
                          std::min(size, mine.count - begin), options_.data.mask_documents,
                          prepared_.tokenizer->end_of_document(), device());
      },
      loss_options, optimizer_.hooks());
  // Every rank of a tensor group has the same.
  return sum_over(mesh_.world(), "loss", mesh_.coordinates().tensor == 0 ? loss : 0);
}

double Trainer::time_one_step() {
  const int64_t sequences = options_.batch_of(progress_.step);
  forward_backward(sequences);
  optimizer_.reduce_gradients();
  const auto begin = Clock::now();
  forward_backward(sequences);
  optimizer_.reduce_gradients();
  optimizer_.zero_gradients();
  return largest_over(mesh_.world(), "time of a step", seconds_since(begin));
}

StepResult Trainer::step() {
  writer_.poll();
  const auto begin = Clock::now();
  const int64_t sequences = options_.batch_of(progress_.step);
  StepResult result;
  result.tokens = sequences * options_.model.context;
  result.learning_rate = learning_rate(options_.train, progress_.tokens + result.tokens,
                                       options_.total_tokens());
  result.loss = forward_backward(sequences);
  optimizer_.reduce_gradients();
  result.gradient_norm = optimizer_.gradient_norm();
  result.skipped = guard_.judge(progress_.step + 1, result.loss, result.gradient_norm);
  if (result.skipped.empty()) {
    optimizer_.update(result.learning_rate, result.gradient_norm);
  } else {
    optimizer_.zero_gradients();
    log::warn("step {} skipped: {}", progress_.step + 1, result.skipped);
    event("step_skipped", {{"step", progress_.step + 1},
                           {"why", result.skipped},
                           {"first_sample", progress_.sequences},
                           {"samples", sequences}});
  }
  ++progress_.step;
  progress_.sequences += sequences;
  progress_.tokens += result.tokens;
  result.seconds = seconds_since(begin);
  progress_.seconds += result.seconds;
  writer_.poll();
  return result;
}

std::optional<eval::Score> Trainer::validate() {
  if (!validation_) return std::nullopt;
  optimizer_.wait_for_weights();
  return eval::evaluate([&](const model::Batch& batch) { return model_.nats(batch); }, device(),
                        *validation_, options_.eval.sequences, options_.train.micro_batch,
                        prepared_.tokenizer->end_of_document(), options_.data.mask_documents);
}

std::string Trainer::checkpoint() {
  writer_.wait();
  optimizer_.wait_for_weights();
  const auto begin = Clock::now();
  checkpoint::Snapshot snapshot =
      take_snapshot(model_, optimizer_, guard_, progress_, prepared_.recipe.to_json(),
                    data_.describe(), options_.model, prepared_.tokenizer->file());
  const std::string path = store_.describe(checkpoint::prefix_of_step(progress_.step));
  event("checkpoint", {{"step", progress_.step},
                       {"path", path},
                       {"copy_seconds", seconds_since(begin)}});
  writer_.write_in_background(std::move(snapshot));
  return path;
}

std::string Trainer::agree_on_stop(const std::string& reason) {
  return train::agree_on_stop(mesh_.world(), reason);
}

}  // namespace sauropod::train

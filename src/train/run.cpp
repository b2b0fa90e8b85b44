#include "train/run.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/units.h"
#include "model/flops.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"
#include "train/gemm_rate.h"
#include "train/memory_policy.h"
#include "train/ranks.h"
#include "train/stop.h"
#include "train/trainer.h"

namespace sauropod::train {
namespace {

nlohmann::json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

// What all ranks must have alike.
comm::Description describe(const Prepared& prepared) {
  comm::Description description{{"the program", base::hash128(base::read_file("/proc/self/exe"))},
                                {"the tokenizer", prepared.tokenizer->hash()}};
  const nlohmann::json recipe = prepared.recipe.to_json();
  for (const auto& [section, options] : recipe.items())
    for (const auto& [key, value] : options.items())
      if (const std::string name = section + "." + key; name != "train.threads")
        description.emplace_back(name, value.dump());
  return description;
}

// Chooses train.steps so that the run takes about train.fit_time, and prepares the run anew with it, so
// that the schedule, run.toml and every checkpoint know the number. A resumed run takes the number of its
// checkpoint.
Prepared fit_steps(Prepared prepared, comm::World& world) {
  const auto fit = prepared.options.train.fit_time;
  if (fit.count() == 0) return prepared;
  int64_t steps = 0;
  int64_t warmup = prepared.options.train.warmup_tokens;
  const storage::LocalStore store(checkpoint_folder(prepared));
  const auto reader = prepared.settings.resume
                          ? checkpoint::Reader::newest_intact(store, nullptr, checkpoint::Check::sizes)
                          : std::nullopt;
  if (reader) {
    const nlohmann::json& train = reader->manifest().training.at("recipe").at("train");
    steps = train.at("steps").get<int64_t>();
    warmup = train.at("warmup_tokens").get<int64_t>();
  } else {
    Trainer trainer(prepared, world);
    const double seconds = trainer.time_one_step();
    steps = std::max<int64_t>(1, std::llround(static_cast<double>(fit.count()) / seconds));
    prepared.options.train.steps = steps;
    // A warm-up meant for a longer run gets a tenth of this one.
    warmup = std::min(warmup, prepared.options.total_tokens() / 10);
    log::info("a step takes {}: {} steps fit in train.fit_time = {}",
              base::format_duration(seconds), steps,
              base::format_duration(static_cast<double>(fit.count())));
  }
  RunSettings settings = prepared.settings;
  settings.sets.push_back("train.fit_time=0");
  settings.sets.push_back(fmt::format("train.steps={}", steps));
  settings.sets.push_back(fmt::format("train.warmup_tokens={}", warmup));
  return prepare(settings);
}

class Loop {
 public:
  Loop(const Prepared& prepared, const StopRequest& stop, comm::World& world)
      : stop_(stop),
        trainer_(prepared, world),
        options_(trainer_.prepared().options),
        first_(world.rank() == 0),
        flops_per_token_(model::training_flops_per_token(options_.model, options_.model.context)) {
    if (first_)
      metrics_.emplace(prepared.settings.out / "metrics.jsonl", trainer_.progress().step);
  }

  RunResult run() {
    if (first_)
      base::write_file_atomically(trainer_.prepared().settings.out / "run.toml",
                                  trainer_.prepared().recipe.to_toml());
    // Of all ranks together, which measure it at the same time.
    gemm_rate_ = sum_over(
        trainer_.mesh().world(), "GEMM rate",
        measure_gemm_rate(
            trainer_.prepared().precision == model::Precision::bf16 ? at::kBFloat16 : at::kFloat,
            trainer_.device()));
    trainer_.event(
        "started", {{"step", trainer_.progress().step},
                    {"steps", options_.train.steps},
                    {"parameters", trainer_.parameters()},
                    {"precision", options_.train.precision},
                    {"threads", options_.train.threads},
                    {"ranks", trainer_.mesh().world().size()},
                    {"layout", comm::describe(trainer_.mesh().layout())},
                    {"gemm_flops", gemm_rate_},
                    {"flops_per_token", flops_per_token_},
                    {"data_tokens", trainer_.data().tokens()}});
    log::info("{} parameters, {} tokens of text, {} steps of {} tokens, {}, {} threads",
              base::format_count(static_cast<double>(trainer_.parameters())),
              base::format_count(static_cast<double>(trainer_.data().tokens())),
              options_.train.steps, options_.train.batch_sequences * options_.model.context,
              options_.train.precision, options_.train.threads);
    if (trainer_.mesh().world().size() > 1)
      log::info("{} ranks: {}", trainer_.mesh().world().size(),
                comm::describe(trainer_.mesh().layout()));
    std::optional<telemetry::Progress> progress;
    if (first_) progress.emplace("Training", options_.train.steps, trainer_.progress().step);
    result_.ended_by = trainer_.agree_on_stop(stop_.reason());
    while (trainer_.progress().step < options_.train.steps && result_.ended_by.empty())
      one_step(progress);
    return finish(progress);
  }

 private:
  void one_step(std::optional<telemetry::Progress>& progress) {
    const StepResult step = trainer_.step();
    const int64_t number = trainer_.progress().step;
    const double rate = static_cast<double>(step.tokens) / step.seconds;
    const double fraction = rate * flops_per_token_ / gemm_rate_;
    nlohmann::json line = {{"step", number},
                           {"loss", finite_or_null(step.loss)},
                           {"grad_norm", finite_or_null(step.gradient_norm)},
                           {"learning_rate", step.learning_rate},
                           {"tokens", trainer_.progress().tokens},
                           {"tokens_per_second", rate},
                           {"gemm_fraction", fraction},
                           {"seconds", step.seconds}};
    if (!step.skipped.empty()) line["skipped"] = true;
    if (progress)
      progress->update(number,
                       fmt::format("loss {:.4f}  {} tok/s  {:.0f}% of GEMM rate", step.loss,
                                   telemetry::grouped(std::llround(rate)), 100 * fraction));
    ++result_.steps_taken;
    result_.loss = step.loss;
    result_.ended_by = trainer_.agree_on_stop(stop_.reason());
    const bool complete = number == options_.train.steps;
    // A run that is asked to stop does not evaluate first: the grace period may be short.
    if (complete || (options_.eval.every > 0 && number % options_.eval.every == 0)) validate(line);
    if (metrics_) metrics_->append(line);
    if (complete || !result_.ended_by.empty() ||
        (options_.checkpoint.every > 0 && number % options_.checkpoint.every == 0))
      result_.checkpoint = trainer_.checkpoint();
  }

  void validate(nlohmann::json& line) {
    const auto score = trainer_.validate();
    if (!score) return;
    line["validation_loss"] = finite_or_null(score->nats_per_token());
    line["validation_bits_per_byte"] = finite_or_null(score->bits_per_byte());
    result_.validation_bits_per_byte = score->bits_per_byte();
  }

  RunResult finish(std::optional<telemetry::Progress>& progress) {
    trainer_.finish_checkpoints();
    result_.step = trainer_.progress().step;
    result_.tokens = trainer_.progress().tokens;
    if (result_.ended_by.empty()) result_.ended_by = "steps";
    trainer_.event("ended", {{"step", result_.step}, {"by", result_.ended_by}});
    if (progress) progress->finish(result_.steps_taken > 0 ? fmt::format("loss {:.4f}", result_.loss) : "");
    return result_;
  }

  const StopRequest& stop_;
  Trainer trainer_;
  const RunOptions& options_;
  bool first_;  // rank 0 writes the run's files and shows its progress
  std::optional<telemetry::MetricsFile> metrics_;
  double flops_per_token_;
  double gemm_rate_ = 0;
  RunResult result_;
};

}  // namespace

RunResult run(Prepared prepared) {
  set_memory_policy();
  const bool first = prepared.environment.rank == 0;
  if (!first) log::set_level(log::Level::warn);
  const auto world = comm::World::start(prepared.environment, prepared.options.communication,
                                        {prepared.options.train.device, describe(prepared)});
  try {
    // From here on a signal ends the run well, also while it is still loading.
    const StopRequest stop(prepared.options.train.max_time, prepared.options.train.stop_file);
    std::optional<base::FolderLock> lock;
    if (first) {
      base::make_folders(prepared.settings.out);
      lock.emplace(prepared.settings.out, "training");
    }
    prepared = fit_steps(std::move(prepared), *world);
    return Loop(prepared, stop, *world).run();
  } catch (const comm::CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    world->report_failure(error.what());
    throw;
  }
}

MetaResult run_on_meta(const Prepared& prepared) {
  const model::ModelOptions& options = prepared.options.model;
  const parallel::ParallelOptions& parallel = prepared.options.parallel;
  const comm::Layout layout = comm::make_layout(static_cast<int>(prepared.ranks),
                                                static_cast<int>(parallel.tensor),
                                                static_cast<int>(parallel.pipeline));
  MetaResult result;
  result.parameters = model::parameter_count(model::parameter_table(options));
  result.flops_per_token = model::training_flops_per_token(options, options.context);
  const auto ids = at::TensorOptions().dtype(at::kInt).device(at::kMeta);
  model::Batch batch;
  batch.tokens = at::zeros({prepared.options.train.micro_batch, options.context}, ids);
  batch.targets = at::zeros_like(batch.tokens);
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const auto world =
        comm::World::fake(comm::rank_of(layout, {0, 0, stage}), layout.world());
    const comm::Mesh mesh(*world, {layout.tensor, layout.pipeline, true});
    parallel::DistributedModel model(
        options, parallel, parallel::place(options, parallel, layout, mesh.coordinates()),
        prepared.precision, at::kMeta, model::parse_recompute(prepared.options.train.recompute),
        mesh);
    // Enough microbatches for every part of the schedule.
    model.forward_backward(2 * layout.pipeline, [&](int64_t) { return batch; }, {});
    int64_t layers = 0;
    for (const model::Span& span : model.placement().spans) layers += span.end - span.begin;
    result.stage_layers.push_back(layers);
    result.stage_parameters.push_back(model::parameter_count(model.placement().table));
  }
  return result;
}

}  // namespace sauropod::train

// sauropod train RECIPE
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "command.h"
#include "model/parameters.h"
#include "plan/memory.h"
#include "train/run.h"

namespace sauropod::apps {
namespace {

struct Arguments {
  train::RunSettings settings;
  std::string out;
  bool json = false;
};

void run_shapes_only(const train::Prepared& prepared, bool json) {
  const train::MetaResult result = train::run_on_meta(prepared);
  const auto stages = static_cast<int64_t>(result.stage_layers.size());
  std::vector<plan::Memory> memory;
  for (int64_t stage = 0; stage < stages; ++stage)
    memory.push_back(plan::estimate_memory(prepared.options, prepared.ranks, stage));
  if (json) {
    nlohmann::json each = nlohmann::json::array();
    int64_t most = 0;
    for (size_t stage = 0; stage < memory.size(); ++stage) {
      most = std::max(most, memory[stage].total());
      each.push_back({{"layers", result.stage_layers[stage]},
                      {"parameters", result.stage_parameters[stage]},
                      {"memory_bytes", memory[stage].total()}});
    }
    std::cout << nlohmann::json{{"parameters", result.parameters},
                                {"flops_per_token", result.flops_per_token},
                                {"ranks", prepared.ranks},
                                {"memory_bytes", most},
                                {"stages", each}}
                     .dump()
              << '\n';
    return;
  }
  std::cout << base::format_count(static_cast<double>(result.parameters)) << " parameters ("
            << result.parameters << "), "
            << base::format_count(result.flops_per_token) << " FLOP a token; one step on shapes "
            << "alone is well.\n";
  if (stages == 1) {
    std::cout << (prepared.ranks == 1 ? "One process" : "Each rank")
              << " would need:" << plan::describe(memory[0]) << '\n';
    return;
  }
  std::cout << prepared.ranks << " ranks, " << stages << " stages. A rank of each would need:\n"
            << plan::describe_stages(result.stage_layers, result.stage_parameters, memory) << '\n';
}

void run(const Arguments& arguments) {
  train::RunSettings settings = arguments.settings;
  settings.out = arguments.out;
  train::Prepared prepared = train::prepare(settings);
  if (prepared.options.train.device == "meta") {
    run_shapes_only(prepared, arguments.json);
    return;
  }
  plan::require_memory(prepared.options, prepared.ranks, prepared.environment.local_size);
  const bool first = prepared.environment.rank == 0;
  const train::RunResult result = train::run(std::move(prepared));
  if (!first) return;  // one of several ranks tells
  if (arguments.json) {
    nlohmann::json object = {{"step", result.step},
                             {"tokens", result.tokens},
                             {"loss", result.steps_taken > 0 ? nlohmann::json(result.loss) : nlohmann::json()},
                             {"ended_by", result.ended_by},
                             {"checkpoint", result.checkpoint},
                             {"out", arguments.out}};
    if (result.validation_bits_per_byte > 0)
      object["validation_bits_per_byte"] = result.validation_bits_per_byte;
    std::cout << object.dump() << '\n';
    return;
  }
  if (result.steps_taken == 0 && result.ended_by == "steps") {
    std::cout << "nothing was left to do: the run has its " << result.step
              << " steps; --set train.steps=MORE goes on\n";
    return;
  }
  std::cout << "step " << result.step;
  if (result.steps_taken > 0) std::cout << ", loss " << result.loss;
  if (result.validation_bits_per_byte > 0)
    std::cout << ", " << result.validation_bits_per_byte << " bits per byte on held-out documents";
  if (result.ended_by != "steps")
    std::cout << "\nended by " << result.ended_by << "; --resume goes on from here";
  if (!result.checkpoint.empty()) std::cout << "\ncheckpoint: " << result.checkpoint;
  std::cout << '\n';
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model by a recipe");
  command->add_option("recipe", arguments->settings.recipe, "Recipe (TOML)")->required();
  command->add_option("--out", arguments->out, "Folder of the run")->default_val("runs/train");
  command->add_flag("--resume", arguments->settings.resume,
                    "Go on from the newest intact checkpoint in the run's folder");
  command->add_option("--set", arguments->settings.sets, "Change one option: section.key=value")
      ->allow_extra_args(false);
  command->add_option("--ranks", arguments->settings.ranks,
                      "With train.device=meta: rehearse the shapes of so many ranks")
      ->check(CLI::PositiveNumber);
  command->add_option("--init-from", arguments->settings.init_from,
                      "Begin with the weights of this checkpoint, a fresh optimizer and schedule");
  command->add_flag("--force-data", arguments->settings.force_data,
                    "Resume although the data are not the same");
  command->add_flag("--json", arguments->json, "Print the result as one JSON object");
  command->footer(
      "Examples:\n"
      "  sauropod train runs/quickstart/run.toml --out runs/longer --set train.fit_time=10m --set train.max_time=0\n"
      "  sauropod train runs/longer/run.toml --out runs/longer --resume\n"
      "  sauropod train recipes/j1-jumbo-178b.toml --set train.device=meta --ranks 800   (shapes alone)");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sauropod::apps

// sauropod config show: the options in effect, and where each came from.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "config/recipe.h"
#include "config/reference.h"
#include "train/options.h"

namespace sauropod::apps {
namespace {

struct Arguments {
  std::string recipe;
  std::vector<std::string> sets;
  bool json = false;
  bool reference = false;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void show(const Arguments& arguments) {
  train::RunOptions options;
  if (arguments.reference) {
    config::Recipe recipe = config::Recipe::parse("", "", {});
    options.bind(recipe);
    print(config::write_reference(recipe.options()));
    return;
  }
  config::Recipe recipe = config::Recipe::load(arguments.recipe, arguments.sets);
  options.bind(recipe);
  recipe.finish();
  options.check();
  print(arguments.json ? recipe.describe().dump() + "\n" : recipe.to_toml());
}

}  // namespace

void add_config(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* config = app.add_subcommand("config", "Show what a recipe means");
  config->require_subcommand(1);
  CLI::App* command = config->add_subcommand(
      "show", "Print every option in effect, and where its value came from, as TOML");
  auto* reference =
      command->add_flag("--reference", arguments->reference, "Describe all options, as Markdown");
  auto* recipe = command->add_option("RECIPE", arguments->recipe, "A recipe (TOML)");
  recipe->excludes(reference);
  command->add_option("--set", arguments->sets, "Set an option: section.key=value (repeatable)")
      ->allow_extra_args(false)
      ->excludes(reference);
  command->add_flag("--json", arguments->json, "Print one JSON object: values, origins, hash")
      ->excludes(reference);
  command->footer(
      "Examples:\n"
      "  sauropod config show recipes/quickstart.toml\n"
      "  sauropod config show recipes/quickstart.toml --set train.steps=100 --json\n"
      "  sauropod config show --reference");
  command->callback([arguments, recipe, reference] {
    if (!*recipe && !*reference) throw CLI::RequiredError("RECIPE");
    show(*arguments);
  });
}

}  // namespace sauropod::apps

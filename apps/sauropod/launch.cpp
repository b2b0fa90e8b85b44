// sauropod launch -n N -- COMMAND
#include "cluster/launch.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "cluster/agent.h"
#include "command.h"

namespace sauropod::apps {
namespace {

void run(const CLI::App& app, const cluster::LaunchOptions& options) {
  if (options.program.empty()) {
    if (options.command.empty())
      base::fail_usage("launch: after -- comes the command that each rank runs: sauropod launch -n 2 -- train recipe.toml");
    const std::string& name = options.command.front();
    const auto commands = app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
    const bool known = std::any_of(commands.begin(), commands.end(),
                                   [&](const CLI::App* command) { return command->get_name() == name; });
    if (!known || name == "launch")
      base::fail_usage("launch: '{}' is no command that ranks can run; after -- comes what one process would be "
                       "given: sauropod launch -n 2 -- train recipe.toml",
                       name);
  }
  const int code = cluster::launch(options);
  if (code != 0) throw CLI::RuntimeError(code);
}

}  // namespace

void add_launch(CLI::App& app) {
  auto options = std::make_shared<cluster::LaunchOptions>();
  CLI::App* command = app.add_subcommand("launch", "Run a command as several ranks, on one machine or more");
  command->add_option("-n,--ranks", options->ranks, "Number of ranks; not needed where hosts have slots")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--hosts", options->hosts, "Hosts and their slots: a,b or a:8,b:8");
  command->add_option("--hostfile", options->host_file, "File with a host a line: a, a:8 or a slots=8");
  command->add_option("--ssh", options->ssh,
                      "Command to use in place of ssh; it gets the host and the command line there");
  command->add_option("--remote-binary", options->remote_binary,
                      "Path of this program on the hosts, if it is not the same as here");
  command->add_option("--address", options->address, "This machine's address as the hosts reach it");
  command->add_option("--env", options->environment, "Environment of the ranks: NAME (as here) or NAME=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--pin", options->pin, "Give each rank processors of its own");
  command->add_option("--max-restarts", options->max_restarts,
                      "Start all ranks again so often when one fails; train goes on from its newest checkpoint")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option_function<std::string>(
          "--grace",
          [options](const std::string& text) { options->grace = base::parse_duration(text, "--grace"); },
          "Time between SIGTERM and SIGKILL when ranks are ended")
      ->default_str("10s");
  command->add_option("--log-dir", options->log_folder, "Folder for a file of each rank's output as well");
  command->add_option("--program", options->program, "Program to start in place of sauropod");
  command->add_option("command", options->command, "After --: the command that each rank runs");
  command->footer(
      "Examples:\n"
      "  sauropod launch -n 2 -- train recipes/quickstart.toml --out runs/first\n"
      "  sauropod launch --hosts node1:8,node2:8 --max-restarts 5 -- train recipe.toml --out /shared/run\n"
      "  sauropod launch -n 4 --pin --log-dir logs -- train recipe.toml --set parallel.tensor=2\n"
      "Inside Slurm, mpirun and torchrun it is not needed: srun sauropod train recipe.toml");
  command->callback([&app, options] { run(app, *options); });

  app.add_subcommand("launch-agent", "Starts a launcher's ranks on this host")->group("")->callback([] {
    if (const int code = cluster::run_agent(); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace sauropod::apps

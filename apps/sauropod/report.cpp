// sauropod report RUN_DIR: writes RUN_DIR/report.html.
#include "telemetry/report.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"

namespace sauropod::apps {

void add_report(CLI::App& app) {
  struct Arguments {
    std::string run;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Write a page that shows how a run went");
  command->add_option("RUN_DIR", arguments->run, "The folder of a run")->required();
  command->add_flag("--json", arguments->json, "Print {\"report\": path} instead of the path");
  command->footer(
      "Writes RUN_DIR/report.html: one file that needs no network. Works on a run that is going on.\n\n"
      "Example:\n  sauropod report runs/quickstart");
  command->callback([arguments] {
    const std::string path = telemetry::write_report(arguments->run).string();
    if (arguments->json) {
      std::puts(nlohmann::json({{"report", path}}).dump().c_str());
    } else {
      std::puts(path.c_str());
    }
  });
}

}  // namespace sauropod::apps

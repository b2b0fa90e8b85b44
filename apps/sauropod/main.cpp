// The program: parses the command line, runs one subcommand, turns errors into exit codes
// (0 ok, 1 failed, 2 wrong use).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/interrupt.h"
#include "cluster/process.h"
#include "command.h"
#include "telemetry/log.h"

int main(int argc, char** argv) {
  using sauropod::base::Exit;
  sauropod::cluster::follow_supervisor(argc, argv);
  sauropod::base::clean_up_on_signals();
  CLI::App app{"Sauropod: make a language model of your own and offer it to people"};
  app.require_subcommand(1);
  sauropod::apps::add_tokenizer(app);
  sauropod::apps::add_data(app);
  sauropod::apps::add_train(app);
  sauropod::apps::add_report(app);
  sauropod::apps::add_config(app);
  sauropod::apps::add_checkpoint(app);
  sauropod::apps::add_eval(app);
  sauropod::apps::add_generate(app);
  sauropod::apps::add_launch(app);
  try {
    sauropod::telemetry::log::configure();
    app.parse(argc, argv);
    // A result that could not be written is not a success.
    if (!std::cout.flush() || std::fflush(stdout) != 0)
      sauropod::base::fail("standard output can't be written: is its disk full?");
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(Exit::usage);
  } catch (const sauropod::base::Error& error) {
    std::fprintf(stderr, "sauropod: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sauropod: internal error: %s\n", error.what());
    return static_cast<int>(Exit::failed);
  }
  return static_cast<int>(Exit::ok);
}

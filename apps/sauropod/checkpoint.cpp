// sauropod checkpoint ls | show | verify; export is in checkpoint_export.cpp.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/inspect.h"
#include "checkpoint/reader.h"
#include "command.h"
#include "telemetry/log.h"
#include "telemetry/progress.h"

namespace sauropod::apps {
namespace {

using checkpoint::Manifest;
using checkpoint::Reader;
using checkpoint::Summary;
using nlohmann::json;

struct Arguments {
  std::string path;
  bool as_json = false;
  bool boxes = false;
};

void print_json(const json& value) { fmt::print("{}\n", value.dump(2)); }

json list_of(const std::vector<Summary>& summaries) {
  json list = json::array();
  for (const Summary& summary : summaries) list.push_back(summary.to_json());
  return {{"checkpoints", std::move(list)}};
}

std::string count_or_dash(const json& number) {
  return number.is_number() ? base::format_count(number.get<double>()) : "-";
}

void list(const Arguments& arguments) {
  const checkpoint::Place place = checkpoint::locate(arguments.path);
  std::vector<Summary> summaries;
  for (const checkpoint::Listed& listed : place.checkpoints)
    summaries.push_back(summarize(place, listed, false));
  if (arguments.as_json) return print_json(list_of(summaries));
  if (summaries.empty()) {
    fmt::print("no checkpoints in {}\n", place.store->describe(""));
    return;
  }
  fmt::print("{:>12}  {:>10}  {:>8}  {:>8}  {}\n", "step", "size", "params", "tokens", "path");
  for (const Summary& summary : summaries) {
    const json row = summary.to_json();
    fmt::print("{:>12}  {:>10}  {:>8}  {:>8}  {}\n", summary.step,
               row["bytes"].is_null() ? "-" : base::format_bytes(row["bytes"].get<double>()),
               count_or_dash(row["parameters"]), count_or_dash(row["tokens"]), summary.path);
    for (const std::string& damage : summary.damages) fmt::print("{:>12}  {}\n", "damaged:", damage);
  }
}

json tensors_of(const Manifest& manifest, bool boxes) {
  json tensors = json::array();
  for (const checkpoint::StoredTensor& tensor : manifest.tensors) {
    json entry{{"parameter", tensor.parameter},
               {"kind", tensor.kind},
               {"dtype", tensor.dtype},
               {"shape", tensor.shape}};
    for (const checkpoint::StoredBox& box : tensor.boxes)
      if (boxes)
        entry["boxes"].push_back({{"offset", box.region.offset},
                                  {"shape", box.region.shape},
                                  {"file", manifest.files[box.file].name},
                                  {"begin", box.begin},
                                  {"end", box.end},
                                  {"hash", box.hash}});
    tensors.push_back(std::move(entry));
  }
  return tensors;
}

void show(const Arguments& arguments) {
  std::vector<std::string> complaints;
  const Reader reader = Reader::open(arguments.path, &complaints, checkpoint::Check::sizes);
  for (const std::string& complaint : complaints) log::warn("{}", complaint);
  const Manifest& manifest = reader.manifest();
  if (arguments.as_json)
    return print_json({{"path", reader.path()},
                       {"step", manifest.step},
                       {"bytes", manifest.bytes()},
                       {"parameters", manifest.parameters()},
                       {"model", manifest.model},
                       {"training", manifest.training},
                       {"tokenizer", {{"bytes", manifest.tokenizer_bytes},
                                      {"hash", manifest.tokenizer_hash}}},
                       {"tensors", tensors_of(manifest, arguments.boxes)}});
  fmt::print("{}\n  step        {}\n  size        {} in {} data files\n  parameters  {}\n"
             "  tokenizer   {} ({})\n",
             reader.path(), manifest.step, base::format_bytes(double(manifest.bytes())),
             manifest.files.size(), telemetry::grouped(manifest.parameters()),
             manifest.tokenizer_hash, base::format_bytes(double(manifest.tokenizer_bytes)));
  fmt::print("model\n");
  for (const auto& [key, value] : manifest.model.items()) fmt::print("  {}: {}\n", key, value.dump());
  fmt::print("training\n");
  for (const auto& [key, value] : manifest.training.items())
    fmt::print("  {}: {}\n", key, value.dump());
  if (!arguments.boxes) return;
  fmt::print("boxes\n");
  for (const checkpoint::StoredTensor& tensor : manifest.tensors)
    for (const checkpoint::StoredBox& box : tensor.boxes)
      fmt::print("  {} of {} {}: {} bytes {} to {}, {}, {}\n", tensor.kind, tensor.parameter,
                 to_text(box.region), manifest.files[box.file].name, box.begin, box.end,
                 tensor.dtype, box.hash);
}

void verify(const Arguments& arguments) {
  const checkpoint::Place place = checkpoint::locate(arguments.path);
  if (place.checkpoints.empty())
    base::fail("{} holds no checkpoint", place.store->describe(""));
  std::vector<Summary> summaries;
  size_t damaged = 0;
  for (const checkpoint::Listed& listed : place.checkpoints) {
    summaries.push_back(summarize(place, listed, true));
    const Summary& summary = summaries.back();
    damaged += summary.intact() ? 0 : 1;
    if (arguments.as_json) continue;
    fmt::print("{}: {}\n", summary.path, summary.intact() ? "intact" : "damaged");
    for (const std::string& damage : summary.damages) fmt::print("  {}\n", damage);
    std::fflush(stdout);
  }
  if (arguments.as_json) print_json(list_of(summaries));
  if (damaged > 0)
    base::fail("{} of {} checkpoints in {} are damaged", damaged, summaries.size(),
               arguments.path);
}

}  // namespace

void add_checkpoint_export(CLI::App& checkpoint);  // checkpoint_export.cpp

void add_checkpoint(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "List, describe, verify and export checkpoints");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* name, const char* help, const char* example,
                       void (*run)(const Arguments&)) {
    CLI::App* sub = command->add_subcommand(name, help);
    sub->footer(fmt::format("Example:\n  sauropod checkpoint {}", example));
    sub->add_flag("--json", arguments->as_json, "Print one JSON object");
    sub->callback([arguments, run] { run(*arguments); });
    return sub;
  };
  const char* folder = "A checkpoint, a folder of checkpoints, or the folder of a run";
  const char* newest = "A checkpoint, or a folder of them (then the newest that is intact)";

  CLI::App* ls = add("ls", "List checkpoints: step, size, tokens, intact or not",
                     "ls runs/quickstart", list);
  ls->add_option("DIR", arguments->path, folder)->required();

  CLI::App* show_command = add("show", "Describe one checkpoint: model, training state, tensors",
                               "show runs/quickstart --json", show);
  show_command->add_option("DIR", arguments->path, newest)->required();
  show_command->add_flag("--boxes", arguments->boxes, "Also say where each part of each tensor lies");

  CLI::App* verify_command =
      add("verify", "Read every byte and name what is damaged (exit code 1 if anything is)",
          "verify runs/quickstart/checkpoints", verify);
  verify_command->add_option("DIR", arguments->path, folder)->required();

  add_checkpoint_export(*command);
}

}  // namespace sauropod::apps

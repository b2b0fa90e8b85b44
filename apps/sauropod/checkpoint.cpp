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
  bool contents = false;
};

void print_json(const json& value) { fmt::print("{}\n", value.dump(2)); }

json list_of(const std::vector<Summary>& summaries) {
  json list = json::array();
  for (const Summary& summary : summaries) list.push_back(summary.to_json());
  return {{"checkpoints", std::move(list)}};
}

// What lies without a manifest, with its size.
json unfinished_of(const checkpoint::Place& place) {
  json list = json::array();
  for (const checkpoint::Listed& listed : place.unfinished) {
    uint64_t bytes = 0;
    for (const auto& [name, size] : listed.files) bytes += size;
    list.push_back({{"step", listed.step},
                    {"path", place.store->describe(listed.prefix)},
                    {"bytes", bytes}});
  }
  return list;
}

std::string count_or_dash(const json& number) {
  return number.is_number() ? base::format_count(number.get<double>()) : "-";
}

void list(const Arguments& arguments) {
  const checkpoint::Place place = checkpoint::locate(arguments.path);
  std::vector<Summary> summaries;
  for (const checkpoint::Listed& listed : place.checkpoints)
    summaries.push_back(summarize(place, listed, false));
  json result = list_of(summaries);
  result["unfinished"] = unfinished_of(place);
  if (arguments.as_json) return print_json(result);
  if (summaries.empty()) fmt::print("no checkpoints in {}\n", place.store->describe(""));
  if (!summaries.empty())
    fmt::print("{:>12}  {:>10}  {:>8}  {:>8}  {}\n", "step", "size", "params", "tokens", "path");
  for (const Summary& summary : summaries) {
    const json row = summary.to_json();
    fmt::print("{:>12}  {:>10}  {:>8}  {:>8}  {}\n", summary.step,
               row["bytes"].is_null() ? "-" : base::format_bytes(row["bytes"].get<double>()),
               count_or_dash(row["parameters"]), count_or_dash(row["tokens"]), summary.path);
    for (const std::string& damage : summary.damages) fmt::print("{:>12}  {}\n", "damaged:", damage);
  }
  for (const json& entry : result["unfinished"])
    fmt::print("unfinished: {} of step {} in {}: being written, or left by a writer that died (the "
               "next one removes it)\n",
               base::format_bytes(entry["bytes"].get<double>()), entry["step"].get<int64_t>(),
               entry["path"].get<std::string>());
}

// `hashes` of the contents, one a tensor, or none.
json tensors_of(const Manifest& manifest, bool boxes, const std::vector<std::string>& hashes) {
  json tensors = json::array();
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const checkpoint::StoredTensor& tensor = manifest.tensors[i];
    json entry{{"parameter", tensor.parameter},
               {"kind", tensor.kind},
               {"dtype", tensor.dtype},
               {"shape", tensor.shape}};
    if (!hashes.empty()) entry["hash"] = hashes[i];
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
  std::vector<std::string> hashes;
  if (arguments.contents)
    for (const checkpoint::StoredTensor& tensor : manifest.tensors)
      hashes.push_back(content_hash(reader, tensor));
  const json contents = hashes.empty() ? json() : json(content_hash(manifest, hashes));
  if (arguments.as_json)
    return print_json({{"path", reader.path()},
                       {"step", manifest.step},
                       {"bytes", manifest.bytes()},
                       {"parameters", manifest.parameters()},
                       {"model", manifest.model},
                       {"training", manifest.training},
                       {"tokenizer", {{"bytes", manifest.tokenizer_bytes},
                                      {"hash", manifest.tokenizer_hash}}},
                       {"contents", contents},
                       {"tensors", tensors_of(manifest, arguments.boxes, hashes)}});
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
  if (arguments.contents) fmt::print("contents\n  {}\n", contents.get<std::string>());
  for (size_t i = 0; i < hashes.size(); ++i) {
    const checkpoint::StoredTensor& tensor = manifest.tensors[i];
    fmt::print("  {} of {} [{}]: {}, {}\n", tensor.kind, tensor.parameter,
               fmt::join(tensor.shape, ", "), tensor.dtype, hashes[i]);
  }
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

  show_command->add_flag("--contents", arguments->contents,
                         "Also hash each tensor's elements: equal whatever ranks and layout wrote "
                         "them (reads everything)");

  CLI::App* verify_command =
      add("verify", "Read every byte and name what is damaged (exit code 1 if anything is)",
          "verify runs/quickstart/checkpoints", verify);
  verify_command->add_option("DIR", arguments->path, folder)->required();

  add_checkpoint_export(*command);
}

}  // namespace sauropod::apps

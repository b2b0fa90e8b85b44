// sauropod checkpoint export
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "checkpoint/export_huggingface.h"
#include "checkpoint/reader.h"
#include "command.h"
#include "telemetry/log.h"
#include "telemetry/progress.h"
#include "tokenizer/export_huggingface.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::apps {
namespace {

struct Arguments {
  std::string path, out;
  std::string format = "hf";
  std::string dtype = "F32";
  bool as_json = false;
};

void run(const Arguments& arguments) {
  using checkpoint::Reader;
  std::vector<std::string> complaints;
  const Reader reader = Reader::open(arguments.path, &complaints, checkpoint::Check::hashes);
  for (const std::string& complaint : complaints) log::warn("{}", complaint);
  const std::string tokenizer_json = tokenizer::to_huggingface(
      tokenizer::Tokenizer::parse(reader.tokenizer_file(), reader.path() + "/tokenizer.json"));

  std::unique_ptr<telemetry::Progress> progress;
  checkpoint::HuggingFaceOptions options;
  options.dtype = arguments.dtype;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress)
      progress = std::make_unique<telemetry::Progress>("Exporting", static_cast<int64_t>(total));
    progress->update(static_cast<int64_t>(done),
                     base::format_bytes(static_cast<double>(done)));
  };
  export_huggingface(reader, tokenizer_json, arguments.out, options);
  if (progress) progress->finish();
  if (arguments.as_json)
    fmt::print("{}\n", nlohmann::json{{"path", arguments.out},
                                      {"checkpoint", reader.path()},
                                      {"step", reader.manifest().step},
                                      {"dtype", options.dtype}}
                           .dump(2));
  else
    fmt::print("{} is in {}\n", reader.path(), arguments.out);
}

}  // namespace

void add_checkpoint_export(CLI::App& checkpoint) {
  CLI::App* command = checkpoint.add_subcommand(
      "export", "Write a checkpoint as a folder that Hugging Face transformers loads");
  command->footer(
      "Example:\n  sauropod checkpoint export --format hf --out exported runs/quickstart");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--format", arguments->format, "hf: Hugging Face")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Element type of the weights")
      ->check(CLI::IsMember({"F32", "BF16", "F64"}))
      ->capture_default_str();
  command->add_option("--out", arguments->out, "New folder to write")->required();
  command->add_flag("--json", arguments->as_json, "Print one JSON object");
  command
      ->add_option("CHECKPOINT", arguments->path,
                   "A checkpoint, or a folder of them (then the newest that is intact)")
      ->required();
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sauropod::apps

// sauropod eval: bits per byte of text or packed data.
#include "eval/load.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "command.h"
#include "data/corpus.h"
#include "eval/text.h"
#include "eval/validation.h"
#include "formats/documents.h"
#include "telemetry/progress.h"

namespace sauropod::apps {
namespace {

struct Arguments {
  std::string checkpoint, data, precision = "auto";
  std::vector<std::string> text;
  formats::DocumentOptions documents;
  int64_t windows = 0;
  int64_t batch = 8;
  bool as_json = false;
};

struct Result {
  eval::Score score;
  int64_t documents = 0;
};

Result score_text(const Arguments& arguments, const eval::LoadedModel& loaded) {
  const auto inputs = formats::list_inputs(arguments.text);
  eval::TextScorer scorer(*loaded.transformer, loaded.tokenizer, arguments.batch);
  telemetry::Progress progress("Evaluating", static_cast<int64_t>(inputs.size()));
  int64_t done = 0;
  for (const formats::InputFile& input : inputs) {
    formats::read_documents(input, arguments.documents,
                            [&](std::string_view, std::string_view text) { scorer.add(text); });
    progress.update(++done, fmt::format("{} documents", scorer.documents()));
  }
  const Result result{scorer.finish(), scorer.documents()};
  progress.finish(fmt::format("{} documents", result.documents));
  if (result.score.bytes == 0)
    base::fail_usage("the text has no bytes: there is nothing to evaluate");
  return result;
}

Result score_data(const Arguments& arguments, const eval::LoadedModel& loaded) {
  const int32_t end = loaded.tokenizer.end_of_document();
  const data::ValidationData data(arguments.data, loaded.options.context,
                                  eval::item_bytes(loaded.tokenizer), end);
  data::check_tokenizer(data.corpus(), loaded.tokenizer.hash());
  return {eval::evaluate(*loaded.transformer, data, arguments.windows, arguments.batch, end, false),
          static_cast<int64_t>(data.corpus().dataset->documents())};
}

void run(const Arguments& arguments) {
  if (arguments.text.empty() == arguments.data.empty())
    base::fail_usage("give what to evaluate, as --text or as --data");
  const eval::LoadedModel loaded = eval::load(arguments.checkpoint, arguments.precision);
  const Result result = arguments.data.empty() ? score_text(arguments, loaded)
                                               : score_data(arguments, loaded);
  const eval::Score& score = result.score;
  const auto precision = model::precision_name(loaded.memory->precision());
  if (arguments.as_json) {
    const nlohmann::json out{{"bits_per_byte", score.bits_per_byte()},
                             {"bytes", score.bytes},
                             {"tokens", score.tokens},
                             {"nats_per_token", score.nats_per_token()},
                             {"bytes_per_token", score.bytes_per_token()},
                             {"documents", result.documents},
                             {"precision", precision},
                             {"checkpoint", loaded.path},
                             {"step", loaded.step}};
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} (step {}, {})\n", loaded.path, loaded.step, precision);
  fmt::print("  bits per byte    {:.4f}\n", score.bits_per_byte());
  fmt::print("  nats per token   {:.4f}\n", score.nats_per_token());
  fmt::print("  bytes per token  {:.3f}\n", score.bytes_per_token());
  fmt::print("  documents        {}\n", telemetry::grouped(result.documents));
  fmt::print("  bytes            {}\n", telemetry::grouped(score.bytes));
  fmt::print("  tokens           {}\n", telemetry::grouped(score.tokens));
}

}  // namespace

void add_eval(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Measure how well a model predicts text");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "A checkpoint, a folder of them (then the newest that is intact), or a run")
      ->required();
  CLI::Option* text = command->add_option(
      "--text", arguments->text, "Files or folders of text, JSON lines too; - is standard input");
  command->add_option("--data", arguments->data, "Packed data instead: the path without .bin or .idx")
      ->excludes(text);
  command->add_option("--field", arguments->documents.field, "JSON lines: the key that holds the text")
      ->capture_default_str();
  command
      ->add_option("--windows", arguments->windows,
                   "With --data: only that many windows, spread evenly; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--precision", arguments->precision,
                   "auto (bf16 where the processor has it), fp32, bf16 or fp64")
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Windows that are read at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--json", arguments->as_json, "Print one JSON object");
  command->footer(
      "Example:\n  sauropod eval --checkpoint runs/quickstart --text runs/quickstart/data/heldout");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sauropod::apps

// `sauropod tokenizer train`.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/threads.h"
#include "base/units.h"
#include "command.h"
#include "formats/documents.h"
#include "telemetry/log.h"
#include "telemetry/progress.h"
#include "tokenizer/corpus.h"
#include "tokenizer/train.h"

namespace sauropod::apps {
namespace {

struct TrainArguments {
  std::vector<std::string> inputs;
  std::string out;
  formats::DocumentOptions documents;
  tokenizer::TrainingOptions training;
  bool exact = false;
  bool json = false;
};

tokenizer::Corpus read_corpus(const TrainArguments& arguments) {
  const auto inputs = formats::list_inputs(arguments.inputs);
  tokenizer::CorpusBuilder builder(arguments.training.threads);
  telemetry::Progress progress("Reading", static_cast<int64_t>(inputs.size()));
  int64_t files = 0;
  for (const auto& input : inputs) {
    formats::read_documents(input, arguments.documents,
                            [&](std::string_view, std::string_view text) {
                              builder.add(text);
                              progress.update(files, base::format_bytes(static_cast<double>(builder.bytes())));
                            });
    ++files;
  }
  tokenizer::Corpus corpus = builder.finish();
  progress.finish(fmt::format("{} documents, {}", corpus.documents, base::format_bytes(static_cast<double>(corpus.bytes))));
  return corpus;
}

void train(TrainArguments arguments) {
  tokenizer::check(arguments.training);
  // A place that can't be written to is found before the work is done.
  base::AtomicFile file(arguments.out);
  const auto began = std::chrono::steady_clock::now();
  tokenizer::Corpus corpus = read_corpus(arguments);
  telemetry::Progress progress("Learning the vocabulary", 100);
  const tokenizer::TrainingResult result = tokenizer::train(
      std::move(corpus), arguments.training, [&](std::string_view stage, double done) {
        progress.update(static_cast<int64_t>(100 * done), stage);
      });
  progress.finish(fmt::format("{} items, {} of several words", result.size, result.multi_word));
  const int64_t asked = arguments.training.vocabulary_size;
  if (result.size < asked) {
    if (arguments.exact)
      base::fail("the text has only {} items worth learning, fewer than the {} asked for: give more text, ask for fewer, or leave out --exact",
                 result.size, asked);
    log::warn("the text has only {} items worth learning, fewer than the {} asked for; {} has those",
              result.size, asked, arguments.out);
  }
  file.write(result.file);
  file.commit();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!arguments.json) return;
  const nlohmann::json out = {{"file", arguments.out},
                              {"hash", base::hash128(result.file)},
                              {"size", result.size},
                              {"asked", asked},
                              {"multi_word_items", result.multi_word},
                              {"documents", result.documents},
                              {"bytes", result.bytes},
                              {"seconds", took.count()}};
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->training.threads = base::hardware_threads();
  CLI::App* command = tokenizer.add_subcommand("train", "Learn a vocabulary from text");
  command->add_option("--input", arguments->inputs, "Files or folders of text, plain or JSON lines, zstd or gzip or neither; -: standard input")->required();
  command->add_option("--vocab-size", arguments->training.vocabulary_size, "Items in all, the 256 bytes and the end-of-document item included")->required();
  command->add_option("--out", arguments->out, "The tokenizer file to write")->required();
  command->add_option("--threads", arguments->training.threads, "Threads; the file is the same for any number")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--field", arguments->documents.field, "JSON lines: the key that holds the text")->capture_default_str();
  command->add_option("--max-words", arguments->training.max_words, "Words an item may have; 1: no items of several words")
      ->capture_default_str();
  command->add_option("--min-count", arguments->training.min_count, "Occurrences that make a phrase a candidate")->capture_default_str();
  command->add_flag("--exact", arguments->exact, "Fail when the text has fewer items than asked for");
  command->add_flag("--json", arguments->json, "Print one JSON object about the result");
  command->footer("Example:\n  sauropod tokenizer train --input docs/ --vocab-size 16384 --out tok.json");
  command->callback([arguments] { train(*arguments); });
}

}  // namespace sauropod::apps

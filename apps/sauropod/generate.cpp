// sauropod generate: continues a prompt.
#include "infer/generate.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "command.h"
#include "eval/load.h"
#include "telemetry/log.h"
#include "tokenizer/stream.h"

namespace sauropod::apps {
namespace {

using nlohmann::json;

struct Arguments {
  std::string checkpoint, prompt, precision = "auto";
  infer::GenerateOptions options;
  bool as_json = false;
};

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
      std::fflush(stdout) != 0)
    base::fail_errno("cannot write to", "standard output", errno);
}

std::string read_standard_input() {
  std::string text, piece(size_t{1} << 16, '\0');
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), stdin))
    text.append(piece, 0, size);
  if (std::ferror(stdin) != 0) base::fail_errno("cannot read", "standard input", errno);
  return text;
}

// Bytes that are no UTF-8 become U+FFFD: JSON can't hold them.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json describe(const infer::Completion& completion, const tokenizer::Tokenizer& tokenizer) {
  return {{"text", tokenizer.decode(completion.tokens)},
          {"tokens", completion.tokens.size()},
          {"ids", completion.tokens},
          {"finish_reason", infer::finish_name(completion.finish)}};
}

void run(Arguments arguments) {
  if (arguments.prompt == "-") arguments.prompt = read_standard_input();
  arguments.options.sampling.check();
  const eval::LoadedModel loaded = eval::load(arguments.checkpoint, arguments.precision);
  const tokenizer::Tokenizer& tokenizer = loaded.tokenizer;
  const infer::Decoder decoder(loaded.options, *loaded.memory);
  infer::GenerateOptions& options = arguments.options;
  options.vocabulary = tokenizer.size();
  options.end_of_document = tokenizer.end_of_document();
  const std::vector<int32_t> prompt = tokenizer.encode(arguments.prompt);

  if (arguments.as_json) {
    const auto completions = infer::generate(decoder, prompt, options);
    json out = describe(completions.front(), tokenizer);
    out["prompt"] = arguments.prompt;
    out["prompt_tokens"] = prompt.size();
    out["seed"] = options.sampling.seed;
    out["checkpoint"] = loaded.path;
    out["step"] = loaded.step;
    if (completions.size() > 1)
      for (const auto& completion : completions)
        out["choices"].push_back(describe(completion, tokenizer));
    write_output(dump(out) + "\n");
    return;
  }
  if (options.choices == 1) {
    tokenizer::StreamDecoder stream(tokenizer);
    // The prompt is printed when the first token is there: a prompt that is refused prints nothing.
    std::string before = arguments.prompt;
    const auto completion =
        infer::generate(decoder, prompt, options, [&](int64_t, int32_t token) {
          write_output(std::exchange(before, "") + stream.feed(token));
        }).front();
    write_output(before + stream.finish() + "\n");
    if (completion.finish == infer::Finish::length &&
        static_cast<int64_t>(completion.tokens.size()) < options.max_tokens)
      log::info("stopped: the model's context of {} tokens is full", loaded.options.context);
    return;
  }
  const auto completions = infer::generate(decoder, prompt, options);
  for (size_t i = 0; i < completions.size(); ++i)
    write_output(fmt::format("{}--- {} ---\n{}{}\n", i == 0 ? "" : "\n", i + 1, arguments.prompt,
                             tokenizer.decode(completions[i].tokens)));
}

}  // namespace

void add_generate(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  infer::GenerateOptions& options = arguments->options;
  infer::SamplingOptions& sampling = options.sampling;
  sampling.temperature = 0.8;
  sampling.top_p = 0.95;
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "A checkpoint, a folder of them (then the newest that is intact), or a run")
      ->required();
  command->add_option("--prompt", arguments->prompt, "What to continue; - reads standard input")
      ->required();
  command->add_option("--max-tokens", options.max_tokens, "Tokens to generate at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--temperature", sampling.temperature,
                   "Below 1 the probable becomes more so; 0 always takes the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Only the k most probable tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "Only the fewest tokens that have this probability together")
      ->capture_default_str();
  command
      ->add_option("--min-p", sampling.min_p,
                   "Only tokens at least this fraction as probable as the most probable one")
      ->capture_default_str();
  command
      ->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "Above 1: tokens that occurred become less probable")
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "The same seed gives the same text")
      ->capture_default_str();
  command->add_option("-n,--n", options.choices, "Continuations")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--precision", arguments->precision,
                   "auto (bf16 where the processor has it), fp32, bf16 or fp64")
      ->capture_default_str();
  command->add_flag("--json", arguments->as_json, "Print one JSON object");
  command->footer(
      "Example:\n  sauropod generate --checkpoint runs/quickstart --prompt 'To open a file' --seed 1");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sauropod::apps

// data pack: text to token files. data inspect: what is in them, and their text again. Described in
// docs/data.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "base/units.h"
#include "command.h"
#include "data/inspect.h"
#include "data/pack.h"
#include "telemetry/log.h"
#include "telemetry/progress.h"
#include "tokenizer/tokenizer.h"

namespace sauropod::apps {
namespace {

namespace fs = std::filesystem;
using telemetry::grouped;

// ---- pack ----

struct PackArguments {
  std::string tokenizer;
  data::PackOptions options;
  bool json = false;
};

void print_side(const char* name, const data::SplitCounts& side, uint64_t all_bytes) {
  std::printf("%-6s %14s documents  %16s tokens  %10s  %5.2f bytes a token  %5.2f%% of the text\n",
              name, grouped(static_cast<int64_t>(side.documents)).c_str(),
              grouped(static_cast<int64_t>(side.tokens)).c_str(),
              base::format_bytes(static_cast<double>(side.bytes)).c_str(),
              static_cast<double>(side.bytes) / static_cast<double>(side.tokens),
              100.0 * static_cast<double>(side.bytes) / static_cast<double>(all_bytes));
}

// The size of the text where it is known beforehand, else 0.
int64_t total_bytes(const std::vector<formats::InputFile>& inputs) {
  int64_t total = 0;
  for (const formats::InputFile& input : inputs) {
    if (input.size < 0 || input.compression != formats::Compression::none || input.json_lines)
      return 0;
    total += input.size;
  }
  return total;
}

void run_pack(PackArguments& arguments) {
  const auto tokenizer = tokenizer::Tokenizer::load(arguments.tokenizer);
  data::PackOptions& options = arguments.options;
  if (options.threads == 0) options.threads = base::hardware_threads();
  telemetry::Progress progress("Packing", total_bytes(formats::list_inputs(options.inputs)));
  options.progress = [&](uint64_t bytes) {
    progress.update(static_cast<int64_t>(bytes), base::format_bytes(static_cast<double>(bytes)));
  };
  const data::PackResult result = data::pack(data::encoder_of(tokenizer), options);
  const uint64_t bytes = result.train.bytes + result.valid.bytes;
  progress.finish(base::format_bytes(static_cast<double>(bytes)));
  if (result.held_out == data::HeldOut::smallest_hash)
    telemetry::log::warn(
        "no document fell into the held-out {}; the one with the smallest hash was held out",
        options.valid_fraction);
  if (result.held_out == data::HeldOut::end_of_document)
    telemetry::log::warn("the text is a single document: its end was held out");
  if (arguments.json) {
    std::cout << result.record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
    return;
  }
  print_side("train", result.train, bytes);
  if (result.valid.documents > 0) print_side("valid", result.valid, bytes);
  if (result.empty_documents > 0)
    std::printf("%s empty documents were left out\n",
                grouped(static_cast<int64_t>(result.empty_documents)).c_str());
  std::printf("written to %s\n", options.out.c_str());
}

void add_pack(CLI::App& data) {
  auto arguments = std::make_shared<PackArguments>();
  data::PackOptions& options = arguments->options;
  CLI::App* command = data.add_subcommand("pack", "Turn text into token files for training");
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file")->required();
  command
      ->add_option(
          "--input", options.inputs,
          "Files or folders of text: plain (a file is a document) or .jsonl/.ndjson (a line "
          "is one), each also as .zst or .gz; '-' is standard input, one document")
      ->required();
  command->add_option("--out", options.out, "Folder for train, valid (.bin, .idx) and pack.json")
      ->required();
  command
      ->add_option("--valid-fraction", options.valid_fraction,
                   "Part of the documents held out for evaluation")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--field", options.field, "The field of JSON lines that holds the text")
      ->capture_default_str();
  options.threads = 0;
  command
      ->add_option("--threads", options.threads,
                   "Threads that encode; the files are the same for any number (0: all processors)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print the content of pack.json");
  command->footer(
      "Example:\n"
      "  sauropod data pack --tokenizer tok.json --input books/ news.jsonl.zst --out data/\n"
      "then train with data.train = \"data/train\" and data.valid = \"data/valid\".");
  command->callback([arguments] { run_pack(*arguments); });
}

// ---- inspect ----

struct InspectArguments {
  std::string path;
  std::string tokenizer;
  std::string decode_to;
  bool decode = false;
  bool json = false;
};

// One packed corpus, or both sides in a folder.
std::vector<fs::path> prefixes_of(const std::string& path) {
  std::vector<fs::path> prefixes;
  if (fs::is_directory(path))
    for (const char* side : {"train", "valid"})
      if (fs::exists(fs::path(path) / (std::string(side) + ".idx")))
        prefixes.push_back(fs::path(path) / side);
  if (prefixes.empty()) prefixes.emplace_back(path);
  return prefixes;
}

void write_out(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size())
    base::fail_errno("cannot write", "standard output", errno);
}

void decode(const InspectArguments& arguments, const std::vector<fs::path>& prefixes,
            const tokenizer::Tokenizer& tokenizer) {
  if (prefixes.size() > 1)
    base::fail_usage("{} holds two corpora: to decode one, give {} or {}", arguments.path,
                     prefixes[0].string(), prefixes[1].string());
  const data::Corpus corpus = data::open_corpus(prefixes[0]);
  data::check_tokenizer(corpus, tokenizer.hash());
  if (!arguments.decode_to.empty()) base::make_folders(arguments.decode_to);
  const uint64_t documents = corpus.dataset->documents();
  const size_t digits = std::to_string(documents).size();
  for (uint64_t d = 0; d < documents; ++d) {
    const std::string text = data::decode_document(corpus, tokenizer, d);
    if (arguments.decode_to.empty()) {
      write_out(text);
    } else {
      base::write_file_atomically(
          fs::path(arguments.decode_to) / fmt::format("{:0{}}.txt", d, digits), text);
    }
  }
  if (std::fflush(stdout) != 0) base::fail_errno("cannot write", "standard output", errno);
}

// The beginning of a text on one line, with what a terminal can't show escaped.
std::string first_words(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, 160)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  // Not in the middle of a character.
  if (text.size() > 160)
    while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0x80) != 0) line.pop_back();
  return line + (text.size() > 160 ? "…" : "");
}

void print_corpus(const nlohmann::ordered_json& seen) {
  const auto number = [](const nlohmann::ordered_json& value) {
    return grouped(value.get<int64_t>());
  };
  std::printf("%s\n", seen["path"].get<std::string>().c_str());
  std::printf("  tokens     %s (%s, largest id %s)\n", number(seen["tokens"]).c_str(),
              seen["token_type"].get<std::string>().c_str(), number(seen["largest_id"]).c_str());
  const auto& lengths = seen["tokens_per_document"];
  std::printf("  documents  %s: mean %.1f tokens, median %s, longest %s\n",
              number(seen["documents"]).c_str(), lengths["mean"].get<double>(),
              number(lengths["median"]).c_str(), number(lengths["longest"]).c_str());
  for (const auto& document : seen["longest_documents"])
    std::printf("             document %s has %s tokens\n", number(document["document"]).c_str(),
                number(document["tokens"]).c_str());
  std::printf("  intact     %s\n", seen["verified"].get<bool>()
                                       ? "yes: the tokens hash to what pack.json says"
                                       : "index and data agree; no pack.json to compare with");
  for (const auto& sample : seen.value("samples", nlohmann::ordered_json::array()))
    std::printf("  document %s: %s\n", number(sample["document"]).c_str(),
                first_words(sample["text"].get<std::string>()).c_str());
}

void run_inspect(const InspectArguments& arguments) {
  const auto prefixes = prefixes_of(arguments.path);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty())
    tokenizer =
        std::make_unique<tokenizer::Tokenizer>(tokenizer::Tokenizer::load(arguments.tokenizer));
  if (arguments.decode || !arguments.decode_to.empty()) {
    if (!tokenizer) base::fail_usage("decoding needs --tokenizer");
    return decode(arguments, prefixes, *tokenizer);
  }
  auto all = nlohmann::ordered_json::array();
  for (const fs::path& prefix : prefixes) {
    const data::Corpus corpus = data::open_corpus(prefix);
    if (tokenizer) data::check_tokenizer(corpus, tokenizer->hash());
    auto seen = data::inspect(corpus, tokenizer ? tokenizer->size() : 0);
    if (tokenizer) {
      seen["samples"] = nlohmann::ordered_json::array();
      const uint64_t documents = corpus.dataset->documents();
      const uint64_t count = std::min<uint64_t>(3, documents);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t document = documents / count * i;
        seen["samples"].push_back(
            {{"document", document},
             {"text", data::decode_document(corpus, *tokenizer, document).substr(0, 1000)}});
      }
    }
    if (!arguments.json) print_corpus(seen);
    all.push_back(std::move(seen));
  }
  if (arguments.json)
    std::cout << nlohmann::ordered_json{{"corpora", all}}.dump(
                     2, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
}

void add_inspect(CLI::App& data) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command =
      data.add_subcommand("inspect", "Check packed data and show what is in it, or its text again");
  command
      ->add_option("path", arguments->path,
                   "A folder that `data pack` wrote, or a path without .bin")
      ->required();
  command->add_option("--tokenizer", arguments->tokenizer,
                      "Tokenizer file: show samples of the text");
  auto* to_output = command->add_flag("--decode", arguments->decode,
                                      "Print the exact bytes of all documents, back to back");
  command
      ->add_option("--decode-to", arguments->decode_to,
                   "Write each document's exact bytes to a file in this folder")
      ->excludes(to_output);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  sauropod data inspect data/\n"
      "  sauropod data inspect data/valid --tokenizer tok.json --decode | zstd -19 | wc -c");
  command->callback([arguments] { run_inspect(*arguments); });
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Pack text for training; look into packed data");
  data->require_subcommand(1);
  add_pack(*data);
  add_inspect(*data);
}

}  // namespace sauropod::apps

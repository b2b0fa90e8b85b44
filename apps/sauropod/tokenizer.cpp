// `sauropod tokenizer`: encode, decode, inspect and export; `train` is in tokenizer_train.cpp.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "command.h"
#include "formats/documents.h"
#include "tokenizer/export_huggingface.h"
#include "tokenizer/inspect.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace sauropod::apps {
namespace {

using tokenizer::Tokenizer;

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
      std::fflush(stdout) != 0)
    base::fail_errno("cannot write to", "standard output", errno);
}

// Calls `receive` with pieces of the file; "-" is standard input.
template <typename Receive>
void read_pieces(const std::string& path, const Receive& receive) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) base::fail_errno("cannot open", path, errno);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closer(
      path == "-" ? nullptr : file, [](std::FILE* f) { return std::fclose(f); });
  std::string piece(size_t{1} << 20, '\0');
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), file))
    receive(std::string_view(piece).substr(0, size));
  if (std::ferror(file) != 0) base::fail_errno("cannot read", path, errno);
}

struct EncodeArguments {
  std::string tokenizer;
  std::vector<std::string> files{"-"};
  bool json = false;
};

void encode(const EncodeArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::load(arguments.tokenizer);
  const char* separator = arguments.json ? "," : " ";
  std::vector<int32_t> ids;
  bool first = true;
  const auto print = [&] {
    std::string text;
    for (const int32_t id : ids) {
      if (!first) text += separator;
      first = false;
      text += std::to_string(id);
    }
    write_output(text);
    ids.clear();
  };
  if (arguments.json) write_output("[");
  for (const std::string& path : arguments.files) {
    tokenizer::StreamEncoder encoder(tokenizer);
    read_pieces(path, [&](std::string_view piece) {
      encoder.feed(piece, ids);
      print();
    });
    encoder.finish(ids);
    print();
  }
  write_output(arguments.json ? "]\n" : "\n");
}

struct DecodeArguments {
  std::string tokenizer;
  std::vector<std::string> files{"-"};
};

// Numbers separated by spaces, commas or line ends; brackets around them are allowed.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& path) {
  std::vector<int32_t> ids;
  constexpr std::string_view between = " \t\r\n,[]";
  for (size_t at = text.find_first_not_of(between); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(between, at), text.size());
    const std::string number(text.substr(at, end - at));
    size_t used = 0;
    try {
      ids.push_back(std::stoi(number, &used));
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != number.size())
      base::fail_usage("{}: \"{}\" at byte {} is not an id: give numbers separated by spaces, or a JSON array",
                       path == "-" ? "standard input" : path, tokenizer::escape(number.substr(0, 40)), at);
    at = text.find_first_not_of(between, end);
  }
  return ids;
}

void decode(const DecodeArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::load(arguments.tokenizer);
  for (const std::string& path : arguments.files) {
    std::string text;
    read_pieces(path, [&](std::string_view piece) { text += piece; });
    write_output(tokenizer.decode(parse_ids(text, path)));
  }
}

struct InspectArguments {
  std::string tokenizer;
  std::vector<std::string> inputs;
  formats::DocumentOptions documents;
  size_t top = 20;
  bool json = false;
};

nlohmann::json to_json(const Tokenizer& tokenizer, const std::vector<tokenizer::ItemUse>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& item : list)
    out.push_back({{"id", item.id},
                   {"text", tokenizer::escape(tokenizer.bytes_of(item.id))},
                   {"count", item.count}});
  return out;
}

void print_list(const char* title, const Tokenizer& tokenizer,
                const std::vector<tokenizer::ItemUse>& list, bool counts) {
  std::string text = fmt::format("\n{}\n", title);
  for (const auto& item : list) {
    const std::string shown = tokenizer::escape(tokenizer.bytes_of(item.id));
    text += counts ? fmt::format("{:>10}  \"{}\"\n", item.count, shown)
                   : fmt::format("  \"{}\"\n", shown);
  }
  write_output(text);
}

void inspect(const InspectArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::load(arguments.tokenizer);
  tokenizer::Inspector inspector(tokenizer);
  if (!arguments.inputs.empty())
    for (const auto& input : formats::list_inputs(arguments.inputs))
      formats::read_documents(
          input, arguments.documents,
          [&](std::string_view, std::string_view text) { inspector.add(text); });
  const tokenizer::Inspection found = inspector.finish(arguments.top);
  const auto ratio = [](int64_t a, int64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
  };
  const double bytes_per_token = ratio(found.bytes, found.tokens);
  const double share = ratio(found.multi_word_tokens(), found.tokens);
  if (arguments.json) {
    const nlohmann::json out = {{"size", found.size},
                                {"multi_word_items", found.multi_word},
                                {"hash", tokenizer.hash()},
                                {"documents", found.documents},
                                {"bytes", found.bytes},
                                {"words", found.words},
                                {"tokens", found.tokens},
                                {"bytes_per_token", bytes_per_token},
                                {"tokens_per_word", ratio(found.tokens, found.words)},
                                {"multi_word_share", share},
                                {"tokens_by_words", found.by_words},
                                {"items_used", found.used},
                                {"most_used", to_json(tokenizer, found.most_used)},
                                {"longest", to_json(tokenizer, found.longest)}};
    write_output(out.dump() + "\n");
    return;
  }
  write_output(fmt::format("{} items, {} of them of several words\n", found.size, found.multi_word));
  if (found.tokens > 0)
    write_output(fmt::format(
        "{} documents, {} bytes, {} words, {} tokens\n{:.3f} bytes per token, {:.3f} tokens per word\n"
        "{:.1f}% of the tokens are of several words: {} of two, {} of three, {} of four\n"
        "{} of the {} items are used\n",
        found.documents, found.bytes, found.words, found.tokens, bytes_per_token,
        ratio(found.tokens, found.words), 100 * share, found.by_words[2], found.by_words[3],
        found.by_words[4], found.used, found.size));
  const bool text = found.tokens > 0;
  print_list(text ? "most used, of several words" : "most probable, of several words", tokenizer,
             found.most_used, text);
  print_list("longest, of several words", tokenizer, found.longest, text);
}

struct ExportArguments {
  std::string tokenizer, out, format = "hf";
};

CLI::Option* tokenizer_option(CLI::App& command, std::string& path, const char* names) {
  return command.add_option(names, path, "The tokenizer file")->required();
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer);  // tokenizer_train.cpp

void add_tokenizer(CLI::App& app) {
  CLI::App* group = app.add_subcommand("tokenizer", "Make and use a vocabulary");
  group->require_subcommand(1);
  add_tokenizer_train(*group);

  auto encode_arguments = std::make_shared<EncodeArguments>();
  CLI::App* command = group->add_subcommand("encode", "Print the ids of text");
  tokenizer_option(*command, encode_arguments->tokenizer, "--tokenizer");
  command->add_option("files", encode_arguments->files, "Files to encode, each for itself; - or none: standard input");
  command->add_flag("--json", encode_arguments->json, "Print one JSON array");
  command->footer("Example:\n  echo 'Hello there' | sauropod tokenizer encode --tokenizer tok.json --json");
  command->callback([encode_arguments] { encode(*encode_arguments); });

  auto decode_arguments = std::make_shared<DecodeArguments>();
  command = group->add_subcommand("decode", "Print the bytes that ids stand for");
  tokenizer_option(*command, decode_arguments->tokenizer, "--tokenizer");
  command->add_option("files", decode_arguments->files, "Files of ids, separated by spaces or as a JSON array; - or none: standard input");
  command->footer("Example:\n  sauropod tokenizer encode --tokenizer tok.json a.txt | sauropod tokenizer decode --tokenizer tok.json | cmp - a.txt");
  command->callback([decode_arguments] { decode(*decode_arguments); });

  auto inspect_arguments = std::make_shared<InspectArguments>();
  command = group->add_subcommand("inspect", "Show what is in a vocabulary, and what it does with given text");
  tokenizer_option(*command, inspect_arguments->tokenizer, "tokenizer,--tokenizer");
  command->add_option("--input", inspect_arguments->inputs, "Files or folders of text to encode");
  command->add_option("--field", inspect_arguments->documents.field, "JSON lines: the key that holds the text")->capture_default_str();
  command->add_option("--top", inspect_arguments->top, "Length of the lists")->capture_default_str();
  command->add_flag("--json", inspect_arguments->json, "Print one JSON object");
  command->footer("Example:\n  sauropod tokenizer inspect tok.json --input docs/");
  command->callback([inspect_arguments] { inspect(*inspect_arguments); });

  auto export_arguments = std::make_shared<ExportArguments>();
  command = group->add_subcommand("export", "Write the vocabulary for other programs");
  tokenizer_option(*command, export_arguments->tokenizer, "--tokenizer");
  command->add_option("--format", export_arguments->format, "hf: tokenizer.json of Hugging Face's tokenizers")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--out", export_arguments->out, "The file to write")->required();
  command->footer("Example:\n  sauropod tokenizer export --tokenizer tok.json --format hf --out tokenizer.json");
  command->callback([export_arguments] {
    base::write_file_atomically(
        export_arguments->out,
        tokenizer::to_huggingface(Tokenizer::load(export_arguments->tokenizer)));
  });
}

}  // namespace sauropod::apps

#include "data/corpus.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace sauropod::data {
namespace {

namespace fs = std::filesystem;

void check_pack_record(const fs::path& path, Corpus& corpus) {
  const std::string name = corpus.dataset->prefix().filename().string();
  uint64_t tokens = 0, documents = 0;
  try {
    const auto record = nlohmann::json::parse(base::read_file(path));
    if (!record.contains("splits") || !record.at("splits").contains(name)) return;
    const auto& split = record.at("splits").at(name);
    tokens = split.at("tokens").get<uint64_t>();
    documents = split.at("documents").get<uint64_t>();
    corpus.data_hash = split.value("bin_xxh3_128", "");
    corpus.tokenizer_hash = record.at("tokenizer").at("hash").get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    base::fail("{} is damaged ({}); pack the text again", path.string(), error.what());
  }
  if (tokens != corpus.dataset->tokens() || documents != corpus.dataset->documents())
    base::fail(
        "{} describes {} tokens in {} documents, but {}.bin holds {} in {}: packing was "
        "interrupted, "
        "or files were replaced; pack the text again",
        path.string(), tokens, documents, corpus.dataset->prefix().string(),
        corpus.dataset->tokens(), corpus.dataset->documents());
}

}  // namespace

Corpus open_corpus(const fs::path& prefix) {
  const auto exists = [](fs::path path, const char* ending) {
    std::error_code ignored;
    return fs::exists(path += ending, ignored);
  };
  const std::string ending = prefix.extension().string();
  if (ending != ".bin" && ending != ".idx" && !exists(prefix, ".idx") && !exists(prefix, ".bin")) {
    if (exists(prefix / "train", ".idx"))
      base::fail_usage("{} is a folder of packed data: give {} or {}", prefix.string(),
                       (prefix / "train").string(), (prefix / "valid").string());
    base::fail_usage(
        "no packed data at {}: there is no {}.idx; `sauropod data pack` makes it, and its path is "
        "given without .bin or .idx",
        prefix.string(), prefix.string());
  }
  Corpus corpus{std::make_shared<formats::IndexedDataset>(prefix), "", ""};
  const fs::path record = corpus.dataset->prefix().parent_path() / "pack.json";
  std::error_code ignored;
  if (fs::exists(record, ignored)) check_pack_record(record, corpus);
  return corpus;
}

void check_tokenizer(const Corpus& corpus, const std::string& hash) {
  if (!corpus.tokenizer_hash.empty() && corpus.tokenizer_hash != hash)
    base::fail_usage(
        "{} was packed with another tokenizer (hash {}, this one has {}): pack the text again, or "
        "use "
        "the tokenizer it was packed with",
        corpus.dataset->prefix().string(), corpus.tokenizer_hash, hash);
}

}  // namespace sauropod::data

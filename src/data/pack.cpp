#include "data/pack.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "formats/indexed_dataset.h"

namespace sauropod::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kProgressBytes = uint64_t{1} << 18;

// One side of the split.
class Side {
 public:
  Side(const fs::path& prefix, formats::TokenType type) : writer_(prefix, type) {}

  void add(std::span<const int32_t> tokens, uint64_t bytes, std::string_view name) {
    writer_.add_document(tokens, name);
    bytes_ += bytes;
  }
  bool empty() const { return writer_.documents() == 0; }
  formats::IndexedDatasetWriter& writer() { return writer_; }
  SplitCounts counts() const {
    return {writer_.documents(), writer_.tokens(), bytes_, writer_.data_hash()};
  }

 private:
  formats::IndexedDatasetWriter writer_;
  uint64_t bytes_ = 0;
};

// Deals documents to the two sides. As long as none fell to the held-out side, the one with the
// smallest hash so far is kept back: should none come, it becomes the held-out one.
class Split {
 public:
  Split(const PackOptions& options, formats::TokenType type)
      : fraction_(options.valid_fraction), train_(options.out / "train", type) {
    if (fraction_ > 0) valid_.emplace(options.out / "valid", type);
  }

  void add(const EncodedDocument& document) {
    if (!valid_) return train_.add(document.tokens, document.bytes, document.name);
    if (static_cast<double>(document.split_hash >> 11) * 0x1.0p-53 < fraction_) {
      release_kept(train_);
      return valid_->add(document.tokens, document.bytes, document.name);
    }
    if (!valid_->empty() || (kept_ && document.split_hash > kept_->hash))
      return train_.add(document.tokens, document.bytes, document.name);
    if (kept_ && document.split_hash == kept_->hash) {
      ++kept_->copies;
      return;
    }
    release_kept(train_);
    kept_ = {document.split_hash,
             {document.tokens.begin(), document.tokens.end()},
             document.bytes,
             std::string(document.name)};
  }

  // Settles the document kept back.
  HeldOut settle(const Encoder& encoder) {
    if (!valid_) return HeldOut::none;
    if (!valid_->empty()) {
      if (train_.empty())
        base::fail_usage(
            "all {} documents fell to the held-out side: give more documents or a smaller "
            "--valid-fraction (it is {})",
            valid_->counts().documents, fraction_);
      return HeldOut::by_hash;
    }
    if (train_.empty()) {
      cut_kept(encoder);
      return HeldOut::end_of_document;
    }
    release_kept(*valid_);
    return HeldOut::smallest_hash;
  }

  Side& train() { return train_; }
  std::optional<Side>& valid() { return valid_; }

 private:
  struct Kept {
    uint64_t hash;
    std::vector<int32_t> tokens;
    uint64_t bytes;
    std::string name;
    uint64_t copies = 1;
  };

  void release_kept(Side& side) {
    if (!kept_) return;
    for (uint64_t i = 0; i < kept_->copies; ++i) side.add(kept_->tokens, kept_->bytes, kept_->name);
    kept_.reset();
  }

  // The end of the only document is held out, from a line's beginning where one is near.
  void cut_kept(const Encoder& encoder) {
    constexpr size_t kSearch = 4096;
    const std::span<const int32_t> tokens(kept_->tokens);
    const size_t items = tokens.size() - 1;  // without the end-of-document item
    if (items < 2)
      base::fail_usage("the text is a single document of one item: there is nothing to hold out");
    const auto share = static_cast<size_t>(static_cast<double>(items) * (1 - fraction_));
    size_t cut = std::clamp<size_t>(share, 1, items - 1);
    for (size_t i = cut; i > 0 && i + kSearch > cut; --i)
      if (encoder.bytes_of(tokens[i - 1]).ends_with('\n')) {
        cut = i;
        break;
      }
    std::vector<int32_t> first(tokens.begin(), tokens.begin() + static_cast<int64_t>(cut));
    uint64_t first_bytes = 0;
    for (const int32_t id : first) first_bytes += encoder.bytes_of(id).size();
    first.push_back(encoder.end_of_document);
    for (uint64_t i = 0; i < kept_->copies; ++i) {
      train_.add(first, first_bytes, kept_->name);
      valid_->add(tokens.subspan(cut), kept_->bytes - first_bytes, kept_->name);
    }
  }

  double fraction_;
  Side train_;
  std::optional<Side> valid_;
  std::optional<Kept> kept_;
};

nlohmann::ordered_json to_json(const SplitCounts& counts) {
  return {{"documents", counts.documents},
          {"tokens", counts.tokens},
          {"bytes", counts.bytes},
          {"bin_xxh3_128", counts.data_hash}};
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) base::fail_errno("cannot remove", path, error.value());
}

}  // namespace

std::string_view name_of(HeldOut held_out) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "by_hash", "smallest_hash",
                                                      "end_of_document"};
  return kNames.at(static_cast<size_t>(held_out));
}

PackResult pack(const Encoder& encoder, const PackOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1))
    base::fail_usage("--valid-fraction {}: give a number from 0 to below 1",
                     options.valid_fraction);
  const auto inputs = formats::list_inputs(options.inputs);
  base::make_folders(options.out);
  const auto type = formats::token_type_for(encoder.vocabulary);
  Split split(options, type);
  PackResult result;
  uint64_t bytes = 0, reported = 0;
  encode_documents(inputs, {.field = options.field}, encoder, options.threads,
                   [&](const EncodedDocument& document) {
                     if (document.bytes == 0) {
                       ++result.empty_documents;
                       return;
                     }
                     split.add(document);
                     bytes += document.bytes;
                     if (options.progress && bytes - reported >= kProgressBytes) {
                       reported = bytes;
                       options.progress(bytes);
                     }
                   });
  if (bytes == 0)
    base::fail_usage("no text: {}", result.empty_documents == 0
                                        ? std::string("the input holds no documents")
                                        : fmt::format("all {} documents of the input are empty",
                                                      result.empty_documents));
  result.held_out = split.settle(encoder);

  // Everything that can run out of space comes before the first file takes its name.
  split.train().writer().finish();
  if (split.valid()) split.valid()->writer().finish();
  result.train = split.train().counts();
  nlohmann::ordered_json splits = {{"train", to_json(result.train)}};
  if (split.valid()) {
    result.valid = split.valid()->counts();
    splits["valid"] = to_json(result.valid);
  }
  result.record = {{"format", "sauropod-pack"},
                   {"version", 1},
                   {"tokenizer",
                    {{"hash", encoder.hash},
                     {"vocabulary", encoder.vocabulary},
                     {"end_of_document", encoder.end_of_document}}},
                   {"token_type", formats::name_of(type)},
                   {"inputs", options.inputs},
                   {"valid_fraction", options.valid_fraction},
                   {"held_out", name_of(result.held_out)},
                   {"empty_documents", result.empty_documents},
                   {"splits", splits}};
  const fs::path record_path = options.out / "pack.json";
  base::AtomicFile record(record_path);
  record.write(result.record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  record.flush();

  // While files of two packings stand side by side there is no pack.json.
  remove_file(record_path);
  split.train().writer().commit();
  if (split.valid()) {
    split.valid()->writer().commit();
  } else {
    remove_file(options.out / "valid.bin");
    remove_file(options.out / "valid.idx");
  }
  record.commit();
  return result;
}

}  // namespace sauropod::data

#include "checkpoint/export_huggingface.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/file.h"
#include "checkpoint/huggingface.h"
#include "formats/safetensors.h"
#include "model/options_json.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t chunk_bytes = uint64_t{64} << 20;
constexpr const char* end_of_document_name = "<|endofdocument|>";

std::string shape_text(const Dimensions& shape) {
  return to_text({Dimensions(shape.size(), 0), shape});
}

// Every parameter of the table with its shape, and no others.
void check_parameters(const Reader& reader, const model::ModelOptions& options) {
  std::set<std::string> expected;
  for (const model::Parameter& parameter : model::parameter_table(options)) {
    expected.insert(parameter.name);
    const StoredTensor* tensor = reader.manifest().find(parameter.name, "master");
    if (tensor == nullptr) base::fail("{} lacks the parameter {}", reader.path(), parameter.name);
    if (tensor->shape != parameter.shape)
      base::fail("{}: the parameter {} has the shape {} instead of {}", reader.path(),
                 parameter.name, shape_text(tensor->shape), shape_text(parameter.shape));
  }
  for (const StoredTensor& tensor : reader.manifest().tensors)
    if (tensor.kind == "master" && !expected.contains(tensor.parameter))
      base::fail("{}: the parameter {} is not one of a {} model", reader.path(), tensor.parameter,
                 options.family);
}

// out[column][row + first_row] = in[row][column], in blocks that stay in the cache.
void transpose_into(const char* in, int64_t rows, int64_t columns, char* out, int64_t out_columns,
                    int64_t first_row, size_t element) {
  constexpr int64_t block = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += block)
    for (int64_t c0 = 0; c0 < columns; c0 += block)
      for (int64_t c = c0; c < std::min(c0 + block, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + block, rows); ++r)
          std::memcpy(out + static_cast<size_t>(c * out_columns + first_row + r) * element,
                      in + static_cast<size_t>(r * columns + c) * element, element);
}

class Exporter {
 public:
  Exporter(const Reader& reader, const HuggingFaceOptions& options, storage::ObjectStore& store)
      : reader_(reader),
        options_(options),
        store_(store),
        element_(element_size(parse_element(options.dtype))) {}

  void write_weights(const std::vector<ForeignTensor>& tensors);

 private:
  void write_shard(const std::string& name, std::span<const ForeignTensor> tensors);
  void write_tensor(const ForeignTensor& tensor, storage::Upload& upload);
  // Reads a parameter in pieces of whole rows and hands them on in order.
  void each_piece(const std::string& parameter,
                  const std::function<void(const char* data, const Region& piece)>& use);
  uint64_t bytes_of(const ForeignTensor& tensor) const {
    return formats::safetensors_bytes(options_.dtype, tensor.shape);
  }

  const Reader& reader_;
  const HuggingFaceOptions& options_;
  storage::ObjectStore& store_;
  const size_t element_;
  uint64_t done_ = 0, total_ = 0;
};

void Exporter::write_weights(const std::vector<ForeignTensor>& tensors) {
  std::vector<size_t> ends;  // of the shards, in tensors
  uint64_t in_shard = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = bytes_of(tensors[i]);
    if (in_shard > 0 && in_shard + bytes > options_.shard_bytes) {
      ends.push_back(i);
      in_shard = 0;
    }
    in_shard += bytes;
    total_ += bytes;
  }
  ends.push_back(tensors.size());
  json places = json::object();
  for (size_t shard = 0, begin = 0; shard < ends.size(); begin = ends[shard++]) {
    const std::string name =
        ends.size() == 1
            ? "model.safetensors"
            : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, ends.size());
    write_shard(name, std::span(tensors).subspan(begin, ends[shard] - begin));
    for (size_t i = begin; i < ends[shard]; ++i) places[tensors[i].name] = name;
  }
  if (ends.size() > 1)
    store_.put("model.safetensors.index.json",
               json{{"metadata", {{"total_size", total_}}}, {"weight_map", places}}.dump(2) + "\n");
}

void Exporter::write_shard(const std::string& name, std::span<const ForeignTensor> tensors) {
  std::vector<formats::SafetensorsEntry> entries;
  for (const ForeignTensor& tensor : tensors) {
    formats::SafetensorsEntry& entry = entries.emplace_back();
    entry.name = tensor.name;
    entry.dtype = options_.dtype;
    entry.shape = tensor.shape;
  }
  // transformers refuses files that do not say which framework's tensors they hold.
  const std::string header = formats::safetensors_header(entries, {{"format", "pt"}});
  const auto upload = store_.create(name, entries.back().end);
  upload->write(header.data(), header.size());
  for (const ForeignTensor& tensor : tensors) {
    write_tensor(tensor, *upload);
    done_ += bytes_of(tensor);
    if (options_.progress) options_.progress(done_, total_);
  }
  upload->commit();
}

void Exporter::write_tensor(const ForeignTensor& tensor, storage::Upload& upload) {
  if (!tensor.transpose) {
    for (const std::string& source : tensor.sources)
      each_piece(source, [&](const char* data, const Region& piece) {
        upload.write(data, static_cast<size_t>(piece.elements()) * element_);
      });
    return;
  }
  const uint64_t bytes = bytes_of(tensor);
  const auto whole = std::make_unique_for_overwrite<char[]>(bytes);
  int64_t first_row = 0;  // of the source, among all sources' rows
  for (const std::string& source : tensor.sources) {
    const int64_t rows = reader_.manifest().find(source, "master")->shape.at(0);
    each_piece(source, [&](const char* data, const Region& piece) {
      transpose_into(data, piece.shape[0], piece.shape[1], whole.get(), tensor.shape[1],
                     first_row + piece.offset[0], element_);
    });
    first_row += rows;
  }
  upload.write(whole.get(), bytes);
}

void Exporter::each_piece(const std::string& parameter,
                          const std::function<void(const char* data, const Region& piece)>& use) {
  const Dimensions& shape = reader_.manifest().find(parameter, "master")->shape;
  const int64_t rows = shape.at(0);
  const int64_t row_elements = Region{{}, shape}.elements() / rows;
  const int64_t step = std::clamp<int64_t>(
      static_cast<int64_t>(chunk_bytes / element_) / row_elements, 1, rows);
  const auto buffer =
      std::make_unique_for_overwrite<char[]>(static_cast<size_t>(step * row_elements) * element_);
  for (int64_t row = 0; row < rows; row += step) {
    Region piece{Dimensions(shape.size(), 0), shape};
    piece.offset[0] = row;
    piece.shape[0] = std::min(step, rows - row);
    reader_.read(parameter, "master", options_.dtype, piece.offset, piece.shape, buffer.get());
    use(buffer.get(), piece);
  }
}

}  // namespace

void export_huggingface(const Reader& reader, const std::string& tokenizer_json,
                        const fs::path& folder, const HuggingFaceOptions& options) {
  const model::ModelOptions model =
      model::options_from_json(reader.manifest().model, reader.path());
  const std::vector<ForeignTensor> tensors = huggingface_tensors(model);
  check_parameters(reader, model);
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    base::fail_usage("{} exists already: choose a new folder for the export", folder.string());
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out"
  fs::path partial = target;
  partial += ".partial";
  if (fs::exists(partial))
    base::fail_usage("{} is left over from an export that was interrupted: remove it first",
                     partial.string());
  try {
    storage::LocalStore store(partial);
    const auto put = [&](const char* name, const json& content) {
      store.put(name, content.dump(2) + "\n");
    };
    Exporter(reader, options, store).write_weights(tensors);
    store.put("tokenizer.json", tokenizer_json);
    put("tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                  {"bos_token", end_of_document_name},
                                  {"eos_token", end_of_document_name},
                                  {"model_max_length", model.context},
                                  {"clean_up_tokenization_spaces", false}});
    put("generation_config.json", {{"bos_token_id", 0}, {"eos_token_id", 0}});
    put("config.json", huggingface_config(model, options.dtype));
    if (std::rename(partial.c_str(), target.c_str()) != 0)
      base::fail_errno("cannot write", target.string(), errno);
    base::sync_folder(target.parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace sauropod::checkpoint

#include "checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/hash.h"
#include "formats/safetensors.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view format_name = "sauropod-checkpoint";
constexpr int64_t format_version = 1;
constexpr std::string_view hash_begin = ",\n\"hash\":\"";
constexpr std::string_view hash_end = "\"}\n";
constexpr size_t hash_digits = 32;

void check_hash(const std::string& hash) {
  if (hash.size() != hash_digits ||
      hash.find_first_not_of("0123456789abcdef") != std::string::npos)
    base::fail("\"{}\" is not a hash", hash);
}

void check_file_name(const std::string& name) {
  storage::check_key(name);
  if (name.find('/') != std::string::npos || name == manifest_name)
    base::fail("\"{}\" can't be the name of a file of a checkpoint", name);
}

int64_t integer(const json& value) {
  // Sizes and positions: never negative, and never so large that adding two could overflow.
  if (!value.is_number_unsigned() || value.get<uint64_t>() >> 62 != 0)
    base::fail("{} is not a size or position", value.dump());
  return value.get<int64_t>();
}

Dimensions dimensions(const json& value) {
  if (!value.is_array() || value.size() > 16)
    base::fail("{} is not a list of at most 16 sizes", value.dump().substr(0, 100));
  Dimensions result;
  for (const json& item : value) result.push_back(integer(item));
  return result;
}

// JSON can't hold NaN or infinity, and would write null without saying so.
void check_finite(const json& value, const std::string& path) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    base::fail("the number {} of the checkpoint is not finite and can't be saved", path);
  if (value.is_object())
    for (const auto& [key, item] : value.items()) check_finite(item, path + "." + key);
  if (value.is_array())
    for (const json& item : value) check_finite(item, path + "[]");
}

json to_json(const std::vector<DataFile>& files) {
  json list = json::array();
  for (const DataFile& file : files)
    list.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"header_bytes", file.header_bytes},
                    {"header_hash", file.header_hash}});
  return list;
}

DataFile file_from(const json& value) {
  return {.name = value.at("name").get<std::string>(),
          .bytes = static_cast<uint64_t>(integer(value.at("bytes"))),
          .header_bytes = static_cast<uint64_t>(integer(value.at("header_bytes"))),
          .header_hash = value.at("header_hash").get<std::string>()};
}

json to_json(const StoredTensor& tensor) {
  json boxes = json::array();
  for (const StoredBox& box : tensor.boxes)
    boxes.push_back({{"offset", box.region.offset},
                     {"shape", box.region.shape},
                     {"file", box.file},
                     {"begin", box.begin},
                     {"end", box.end},
                     {"hash", box.hash}});
  return {{"parameter", tensor.parameter},
          {"kind", tensor.kind},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"boxes", std::move(boxes)}};
}

StoredTensor tensor_from(const json& value) {
  StoredTensor tensor;
  tensor.parameter = value.at("parameter").get<std::string>();
  tensor.kind = value.at("kind").get<std::string>();
  tensor.dtype = value.at("dtype").get<std::string>();
  tensor.shape = dimensions(value.at("shape"));
  for (const json& item : value.at("boxes")) {
    StoredBox box;
    box.region = {dimensions(item.at("offset")), dimensions(item.at("shape"))};
    box.file = static_cast<size_t>(integer(item.at("file")));
    box.begin = static_cast<uint64_t>(integer(item.at("begin")));
    box.end = static_cast<uint64_t>(integer(item.at("end")));
    box.hash = item.at("hash").get<std::string>();
    tensor.boxes.push_back(std::move(box));
  }
  return tensor;
}

Manifest manifest_from(const json& value) {
  if (value.at("format") != format_name) base::fail("it is not a manifest of a checkpoint");
  const int64_t version = integer(value.at("version"));
  if (version != format_version)
    base::fail("it has format version {}, and this program reads version {}: use the program that "
               "wrote it, or a newer one",
               version, format_version);
  Manifest manifest;
  manifest.step = integer(value.at("step"));
  manifest.training = value.at("training");
  manifest.model = value.at("model");
  const json& tokenizer = value.at("tokenizer");
  manifest.tokenizer_name = tokenizer.at("name").get<std::string>();
  manifest.tokenizer_bytes = static_cast<uint64_t>(integer(tokenizer.at("bytes")));
  manifest.tokenizer_hash = tokenizer.at("hash").get<std::string>();
  for (const json& file : value.at("files")) manifest.files.push_back(file_from(file));
  for (const json& tensor : value.at("tensors")) manifest.tensors.push_back(tensor_from(tensor));
  return manifest;
}

// The manifest without its last lines, once its hash has been found right.
void check_own_hash(std::string_view bytes) {
  const size_t tail = hash_begin.size() + hash_digits + hash_end.size();
  if (bytes.size() < tail) base::fail("it is cut short");
  const std::string_view body = bytes.substr(0, bytes.size() - tail);
  const std::string expected =
      std::string(hash_begin) + base::hash128(body) + std::string(hash_end);
  if (bytes.substr(body.size()) != expected)
    base::fail("bytes 0 to {} do not have the hash at its end: it was altered or cut short",
               bytes.size());
}

}  // namespace

std::string Part::to_bytes() const {
  json list = json::array();
  for (const StoredTensor& tensor : tensors) list.push_back(to_json(tensor));
  return json{{"files", to_json(files)}, {"tensors", std::move(list)}}.dump();
}

Part Part::parse(std::string_view bytes) {
  try {
    const json value = json::parse(bytes);
    Part part;
    for (const json& file : value.at("files")) part.files.push_back(file_from(file));
    for (const json& tensor : value.at("tensors")) part.tensors.push_back(tensor_from(tensor));
    return part;
  } catch (const json::exception& error) {
    base::fail("the description of a part of the checkpoint can't be read: {}", error.what());
  }
}

void Manifest::add(const Part& part) {
  const size_t first_file = files.size();
  files.insert(files.end(), part.files.begin(), part.files.end());
  for (const StoredTensor& added : part.tensors) {
    const auto [at, fresh] =
        index_.emplace(std::pair(added.parameter, added.kind), tensors.size());
    if (fresh) tensors.push_back({added.parameter, added.kind, added.dtype, added.shape, {}});
    StoredTensor& tensor = tensors[at->second];
    if (tensor.dtype != added.dtype || tensor.shape != added.shape)
      base::fail("{} of {} is {} [{}], elsewhere {} [{}]", added.kind, added.parameter,
                 added.dtype, fmt::join(added.shape, ", "), tensor.dtype,
                 fmt::join(tensor.shape, ", "));
    for (StoredBox box : added.boxes) {
      box.file += first_file;
      tensor.boxes.push_back(std::move(box));
    }
  }
}

std::string Manifest::to_bytes() const {
  check_finite(training, "training");
  check_finite(model, "model");
  try {
    check();
  } catch (const base::Error& error) {
    SAUROPOD_CHECK(false, "{}", error.what());
  }
  try {
    const json tokenizer = {
        {"name", tokenizer_name}, {"bytes", tokenizer_bytes}, {"hash", tokenizer_hash}};
    std::string text = fmt::format(
        "{{\"format\":\"{}\",\"version\":{},\"step\":{},\n\"training\":{},\n\"model\":{},\n"
        "\"tokenizer\":{},\n\"files\":{},\n\"tensors\":[",
        format_name, format_version, step, training.dump(), model.dump(), tokenizer.dump(),
        to_json(files).dump());
    for (size_t i = 0; i < tensors.size(); ++i)
      text += (i == 0 ? "\n" : ",\n") + to_json(tensors[i]).dump();
    text += "]";
    const std::string hash = base::hash128(text);
    text.append(hash_begin).append(hash).append(hash_end);
    if (text.size() > manifest_limit)
      base::fail("the manifest would have {} bytes, more than the {} allowed", text.size(),
                 manifest_limit);
    return text;
  } catch (const json::exception& error) {
    base::fail("the training state can't be saved as JSON: {}", error.what());
  }
}

Manifest Manifest::parse(std::string_view bytes, const std::string& name) {
  try {
    check_own_hash(bytes);
    const json value = json::parse(bytes, nullptr, false);
    if (!value.is_object()) base::fail("it is not a JSON object");
    Manifest manifest = manifest_from(value);
    manifest.check();
    manifest.build_index();
    return manifest;
  } catch (const json::exception& error) {
    throw DamageError(fmt::format("{} is damaged: {}", name, error.what()));
  } catch (const base::Error& error) {
    throw DamageError(fmt::format("{} can't be used: {}", name, error.what()));
  }
}

void Manifest::check() const {
  std::set<std::string> names{std::string(manifest_name)};
  const auto check_file = [&](const std::string& name, const std::string& hash) {
    check_file_name(name);
    check_hash(hash);
    if (!names.insert(name).second) base::fail("the file {} is listed twice", name);
  };
  check_file(tokenizer_name, tokenizer_hash);
  // Per data file, the byte ranges that something lies in.
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> ranges(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    check_file(files[i].name, files[i].header_hash);
    ranges[i].push_back({0, files[i].header_bytes});
  }
  std::set<std::pair<std::string, std::string>> tensor_names;
  for (const StoredTensor& tensor : tensors) {
    const std::string title = fmt::format("{} of {}", tensor.kind, tensor.parameter);
    if (!tensor_names.insert({tensor.parameter, tensor.kind}).second)
      base::fail("{} is listed twice", title);
    const uint64_t element = element_size(parse_element(tensor.dtype));
    formats::safetensors_bytes(tensor.dtype, tensor.shape);  // throws when too large
    std::vector<Region> regions;
    for (const StoredBox& box : tensor.boxes) regions.push_back(box.region);
    if (const auto fault = tiling_fault(tensor.shape, regions))
      base::fail("{}: {}", title, *fault);
    for (const StoredBox& box : tensor.boxes) {
      check_hash(box.hash);
      if (box.file >= files.size()) base::fail("{}: there is no file {}", title, box.file);
      if (box.begin > box.end || box.end > files[box.file].bytes ||
          box.end - box.begin != static_cast<uint64_t>(box.region.elements()) * element)
        base::fail("{}: bytes {} to {} of {} can't hold the box {}", title, box.begin, box.end,
                   files[box.file].name, to_text(box.region));
      ranges[box.file].push_back({box.begin, box.end});
    }
  }
  for (size_t i = 0; i < files.size(); ++i) {
    std::sort(ranges[i].begin(), ranges[i].end());
    uint64_t position = 0;
    for (const auto& [begin, end] : ranges[i]) {
      if (begin != position)
        base::fail("{}: the box at byte {} should begin at {}", files[i].name, begin, position);
      position = end;
    }
    if (position != files[i].bytes)
      base::fail("{}: bytes {} to {} belong to no box", files[i].name, position, files[i].bytes);
  }
}

void Manifest::build_index() {
  for (size_t i = 0; i < tensors.size(); ++i)
    index_[{tensors[i].parameter, tensors[i].kind}] = i;
}

const StoredTensor* Manifest::find(const std::string& parameter, const std::string& kind) const {
  const auto found = index_.find(std::pair(parameter, kind));
  return found == index_.end() ? nullptr : &tensors[found->second];
}

uint64_t Manifest::bytes() const {
  uint64_t total = tokenizer_bytes;
  for (const DataFile& file : files) total += file.bytes;
  return total;
}

int64_t Manifest::parameters() const {
  int64_t count = 0;
  for (const StoredTensor& tensor : tensors)
    if (tensor.kind == "master") count += Region{{}, tensor.shape}.elements();
  return count;
}

}  // namespace sauropod::checkpoint

#include "formats/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::formats {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are written as memory holds them");

constexpr uint64_t header_limit = 100'000'000;  // as the reference implementation's
constexpr size_t header_alignment = 64;

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsEntry parse_entry(const std::string& key, const json& value, uint64_t data_begin,
                             uint64_t file_size) {
  SafetensorsEntry entry;
  entry.name = key;
  entry.dtype = value.at("dtype").get<std::string>();
  for (const json& dimension : value.at("shape")) {
    if (!dimension.is_number_unsigned()) base::fail("its shape holds something else than sizes");
    entry.shape.push_back(dimension.get<int64_t>());
  }
  const json& offsets = value.at("data_offsets");
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    base::fail("its data_offsets are not two byte positions");
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > file_size - data_begin)
    base::fail("its bytes {} to {} lie outside the file", begin, end);
  const uint64_t bytes = safetensors_bytes(entry.dtype, entry.shape);
  if (end - begin != bytes)
    base::fail("{} of shape {} takes {} bytes, not {}", entry.dtype, shape_text(entry.shape), bytes,
               end - begin);
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

}  // namespace

size_t safetensors_element_size(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "U8" || dtype == "I8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2")
    return 1;
  return 0;
}

uint64_t safetensors_bytes(std::string_view dtype, std::span<const int64_t> shape) {
  uint64_t bytes = safetensors_element_size(dtype);
  if (bytes == 0) base::fail("the element type \"{}\" is unknown", dtype);
  for (const int64_t dimension : shape) {
    if (dimension < 0 ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes) || bytes >> 62 != 0)
      base::fail("the shape {} is too large", shape_text(shape));
  }
  return bytes;
}

std::string safetensors_header(std::vector<SafetensorsEntry>& tensors,
                               const SafetensorsMetadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (SafetensorsEntry& tensor : tensors) {
    tensor.begin = position;
    position += safetensors_bytes(tensor.dtype, tensor.shape);
    tensor.end = position;
    const bool fresh = header
                           .emplace(tensor.name, json{{"dtype", tensor.dtype},
                                                      {"shape", tensor.shape},
                                                      {"data_offsets", {tensor.begin, tensor.end}}})
                           .second;
    SAUROPOD_CHECK(fresh, "two tensors are called {}", tensor.name);
  }
  std::string text = header.dump();
  const size_t unpadded = text.size() + sizeof(uint64_t);
  text.append((header_alignment - unpadded % header_alignment) % header_alignment, ' ');
  if (text.size() > header_limit)
    base::fail("a safetensors file can't hold {} tensors: its header would have {} bytes, and the "
               "format allows {}",
               tensors.size(), text.size(), header_limit);
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  for (SafetensorsEntry& tensor : tensors) {
    tensor.begin += bytes.size();
    tensor.end += bytes.size();
  }
  return bytes;
}

SafetensorsHeader parse_safetensors(std::string_view start, uint64_t file_size,
                                    const std::string& name) {
  uint64_t length = 0;
  if (start.size() < sizeof(length) || file_size < sizeof(length))
    base::fail("{} is not a safetensors file: it has only {} bytes", name, file_size);
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > header_limit || length > file_size - sizeof(length) ||
      length > start.size() - sizeof(length))
    base::fail("{} is not a safetensors file, or it is cut short: its header claims {} bytes", name,
               length);
  const uint64_t data_begin = sizeof(length) + length;
  const json header = json::parse(start.substr(sizeof(length), length), nullptr, false);
  if (!header.is_object()) base::fail("{}: the header is not a JSON object", name);

  SafetensorsHeader result;
  for (const auto& [key, value] : header.items()) {
    try {
      if (key == "__metadata__")
        result.metadata = value.get<SafetensorsMetadata>();
      else
        result.tensors.push_back(parse_entry(key, value, data_begin, file_size));
    } catch (const json::exception&) {
      base::fail("{}: the header's entry \"{}\" is malformed", name, key);
    } catch (const base::Error& error) {
      base::fail("{}: tensor \"{}\": {}", name, key, error.what());
    }
  }
  std::sort(result.tensors.begin(), result.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  uint64_t position = data_begin;
  for (const SafetensorsEntry& tensor : result.tensors) {
    if (tensor.begin != position)
      base::fail("{}: the bytes of tensor \"{}\" begin at {} instead of {}: tensors overlap or leave "
                 "a gap",
                 name, tensor.name, tensor.begin, position);
    position = tensor.end;
  }
  if (position != file_size)
    base::fail("{} has {} bytes, but its tensors end at byte {}", name, file_size, position);
  return result;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(path), header_(parse_safetensors(file_.text(),
                                                                   file_.bytes().size(), path_)) {}

const SafetensorsEntry& SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const SafetensorsEntry& entry) { return entry.name == name; });
  if (found == header_.tensors.end()) base::fail("{} has no tensor \"{}\"", path_, name);
  return *found;
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(entry.begin, entry.end - entry.begin);
}

}  // namespace sauropod::formats

#include "checkpoint/inspect.h"

#include <algorithm>
#include <filesystem>

#include "base/hash.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {

using nlohmann::json;

namespace {

constexpr uint64_t content_piece = uint64_t{64} << 20;

}  // namespace

Place locate(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path folder(path);
  if (!fs::is_directory(folder))
    base::fail_usage("{} is not a folder: give the folder of a checkpoint, or one that holds "
                     "checkpoints",
                     path);
  Place place;
  place.single = fs::exists(folder / manifest_name);
  if (!place.single && fs::is_directory(folder / "checkpoints")) folder /= "checkpoints";
  place.store = std::make_shared<storage::LocalStore>(folder);
  if (place.single) {
    place.checkpoints.push_back(list_one(*place.store, ""));
    return place;
  }
  for (Listed& listed : list_steps(*place.store))
    (listed.committed() ? place.checkpoints : place.unfinished).push_back(std::move(listed));
  return place;
}

Summary summarize(const Place& place, const Listed& listed, bool hashes) {
  Summary summary;
  summary.step = listed.step;
  summary.path = place.store->describe(listed.prefix);
  if (summary.path.ends_with('/')) summary.path.pop_back();
  try {
    const Reader reader(place.store, listed.prefix);
    summary.manifest = reader.manifest();
    summary.step = summary.manifest->step;
    if (hashes) summary.damages = reader.damages();
  } catch (const DamageError& error) {
    summary.damages.push_back(error.what());
  }
  return summary;
}

std::string content_hash(const Reader& reader, const StoredTensor& tensor) {
  const uint64_t element = element_size(parse_element(tensor.dtype));
  const Region full{Dimensions(tensor.shape.size(), 0), tensor.shape};
  base::Hasher hasher;
  std::vector<char> buffer;
  for (const Region& piece : cut(full, static_cast<int64_t>(content_piece / element))) {
    buffer.resize(static_cast<uint64_t>(piece.elements()) * element);
    reader.read(tensor.parameter, tensor.kind, tensor.dtype, piece.offset, piece.shape,
                buffer.data());
    hasher.update(buffer.data(), buffer.size());
  }
  return hasher.digest();
}

std::string content_hash(const Manifest& manifest, const std::vector<std::string>& hashes) {
  SAUROPOD_CHECK(hashes.size() == manifest.tensors.size());
  std::vector<std::string> lines;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const StoredTensor& tensor = manifest.tensors[i];
    lines.push_back(fmt::format("{} {} {} [{}] {}\n", tensor.kind, tensor.parameter, tensor.dtype,
                                fmt::join(tensor.shape, ", "), hashes[i]));
  }
  std::sort(lines.begin(), lines.end());
  base::Hasher hasher;
  for (const std::string& line : lines) hasher.update(line);
  return hasher.digest();
}

json Summary::to_json() const {
  json result{{"step", step},      {"path", path},     {"intact", intact()}, {"bytes", nullptr},
              {"parameters", nullptr}, {"tokens", nullptr}, {"damages", damages}};
  if (!manifest) return result;
  result["bytes"] = manifest->bytes();
  result["parameters"] = manifest->parameters();
  if (manifest->training.is_object() && manifest->training.contains("tokens"))
    result["tokens"] = manifest->training["tokens"];
  return result;
}

}  // namespace sauropod::checkpoint

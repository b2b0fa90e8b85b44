#include "checkpoint/inspect.h"

#include <filesystem>

#include "checkpoint/reader.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {

using nlohmann::json;

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
  place.checkpoints = list_steps(*place.store);
  std::erase_if(place.checkpoints, [](const Listed& listed) { return !listed.committed(); });
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

#include "checkpoint/catalog.h"

#include <charconv>
#include <optional>

namespace sauropod::checkpoint {
namespace {

constexpr std::string_view step_prefix = "step-";

// The step of a folder named as prefix_of_step names it, and no other way.
std::optional<int64_t> step_of_folder(std::string_view folder) {
  if (!folder.starts_with(step_prefix)) return std::nullopt;
  const std::string_view digits = folder.substr(step_prefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || prefix_of_step(step) != std::string(folder) + "/")
    return std::nullopt;
  return step;
}

void check_size(const storage::ObjectStore& store, const Listed& listed, const std::string& name,
                uint64_t bytes) {
  const auto found = listed.files.find(name);
  const std::string title = store.describe(listed.prefix + name);
  if (found == listed.files.end()) throw DamageError(fmt::format("{} is missing", title));
  if (found->second != bytes)
    throw DamageError(fmt::format("{} has {} bytes instead of {}: it is {}", title, found->second,
                                  bytes, found->second < bytes ? "cut short" : "not the one written"));
}

}  // namespace

std::string prefix_of_step(int64_t step) { return fmt::format("{}{:09}/", step_prefix, step); }

std::string data_file_begin(const std::string& attempt, int rank) {
  return fmt::format("data-{}-r{:05}-", attempt, rank);
}

std::string data_file_name(const std::string& attempt, int rank, size_t number) {
  return fmt::format("{}{:04}.safetensors", data_file_begin(attempt, rank), number);
}

bool is_data_file(std::string_view name) {
  return name.starts_with("data-") && name.ends_with(".safetensors");
}

std::string attempt_of(std::string_view name) {
  if (!is_data_file(name)) return "";
  name.remove_prefix(name.find('-') + 1);
  const size_t end = name.find("-r");
  return end == std::string_view::npos ? "" : std::string(name.substr(0, end));
}

std::vector<Listed> list_steps(const storage::ObjectStore& store) {
  std::map<int64_t, Listed> steps;
  for (const storage::ObjectInfo& object : store.list(std::string(step_prefix))) {
    const size_t slash = object.key.find('/');
    if (slash == std::string::npos) continue;
    const auto step = step_of_folder(std::string_view(object.key).substr(0, slash));
    if (!step) continue;
    Listed& listed = steps[*step];
    listed.step = *step;
    listed.prefix = object.key.substr(0, slash + 1);
    listed.files[object.key.substr(slash + 1)] = object.size;
  }
  std::vector<Listed> result;
  for (auto& [step, listed] : steps) result.push_back(std::move(listed));
  return result;
}

Listed list_one(const storage::ObjectStore& store, const std::string& prefix) {
  Listed listed;
  listed.prefix = prefix;
  if (const auto step = step_of_folder(prefix.substr(0, prefix.find('/')))) listed.step = *step;
  for (const storage::ObjectInfo& object : store.list(prefix))
    listed.files[object.key.substr(prefix.size())] = object.size;
  return listed;
}

std::string read_manifest(const storage::ObjectStore& store, const Listed& listed) {
  const std::string key = listed.prefix + std::string(manifest_name);
  const std::string title = store.describe(key);
  if (!listed.committed())
    throw DamageError(fmt::format("{} is missing: there is no complete checkpoint", title));
  if (listed.files.at(std::string(manifest_name)) > manifest_limit)
    throw DamageError(fmt::format("{} is larger than a manifest can be", title));
  try {
    return store.get(key, manifest_limit);
  } catch (const storage::StoreError& error) {
    if (error.cause() == storage::Cause::missing || error.cause() == storage::Cause::damaged)
      throw DamageError(error.what());
    throw;
  }
}

Manifest check_manifest(const storage::ObjectStore& store, const Listed& listed,
                        const std::string& bytes) {
  const std::string title = store.describe(listed.prefix + std::string(manifest_name));
  Manifest manifest = Manifest::parse(bytes, title);
  check_size(store, listed, manifest.tokenizer_name, manifest.tokenizer_bytes);
  for (const DataFile& file : manifest.files) check_size(store, listed, file.name, file.bytes);
  if (!listed.prefix.empty() && prefix_of_step(listed.step) == listed.prefix &&
      manifest.step != listed.step)
    throw DamageError(fmt::format("{} is of step {}: the folder was renamed", title, manifest.step));
  return manifest;
}

Manifest load_manifest(const storage::ObjectStore& store, const Listed& listed) {
  return check_manifest(store, listed, read_manifest(store, listed));
}

}  // namespace sauropod::checkpoint

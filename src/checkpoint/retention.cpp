#include "checkpoint/retention.h"

#include <algorithm>
#include <set>

#include "checkpoint/reader.h"

namespace sauropod::checkpoint {
namespace {

// Whether data files of several attempts lie beside each other, so that some are not the manifest's.
bool has_several_attempts(const Listed& listed) {
  std::set<std::string> attempts;
  for (const auto& [name, bytes] : listed.files)
    if (is_data_file(name)) attempts.insert(attempt_of(name));
  return attempts.size() > 1;
}

}  // namespace

void Keeper::remove_leftovers() {
  for (const Listed& listed : list_steps(store_)) {
    if (!listed.committed()) {
      remove_checkpoint(listed);
    } else if (has_several_attempts(listed)) {
      try {
        remove_unlisted(listed, load_manifest(store_, listed));
      } catch (const DamageError&) {
        // Nobody can say which files belong to it: it stays as it is.
      }
    }
  }
  store_.remove_unfinished("step-");
}

void Keeper::written(const Manifest& manifest, const Listed& before) {
  intact_[manifest.step] = true;
  remove_unlisted(before, manifest);
  retain(manifest.step);
}

void Keeper::remove_checkpoint(const Listed& listed) {
  store_.remove(listed.prefix + std::string(manifest_name));
  for (const auto& [name, bytes] : listed.files)
    if (name != manifest_name) store_.remove(listed.prefix + name);
  intact_.erase(listed.step);
}

void Keeper::remove_unlisted(const Listed& listed, const Manifest& manifest) {
  std::set<std::string> names;
  for (const DataFile& file : manifest.files) names.insert(file.name);
  for (const auto& [name, bytes] : listed.files)
    if (is_data_file(name) && !names.contains(name)) store_.remove(listed.prefix + name);
}

bool Keeper::is_intact(const Listed& listed) {
  const auto known = intact_.find(listed.step);
  if (known != intact_.end()) return known->second;
  bool intact = true;
  try {
    const Reader reader(store_, listed.prefix, Check::hashes);
  } catch (const DamageError&) {
    intact = false;
  }
  return intact_[listed.step] = intact;
}

// Checkpoints of later steps belong to a run that was abandoned: they neither count nor are touched.
// A checkpoint counts as one of the last only when its bytes are known to be right: those of earlier
// runs are read once, so that a damaged one never costs the intact one behind it.
void Keeper::retain(int64_t newest) {
  if (retention_.keep_last <= 0) return;
  std::vector<Listed> steps = list_steps(store_);
  std::erase_if(steps, [&](const Listed& listed) { return listed.step > newest; });
  if (static_cast<int64_t>(steps.size()) <= retention_.keep_last) return;
  int64_t kept = 0;
  for (auto listed = steps.rbegin(); listed != steps.rend(); ++listed) {
    if (kept < retention_.keep_last)
      kept += is_intact(*listed) ? 1 : 0;
    else if (retention_.keep_every <= 0 || listed->step % retention_.keep_every != 0)
      remove_checkpoint(*listed);
  }
}

}  // namespace sauropod::checkpoint

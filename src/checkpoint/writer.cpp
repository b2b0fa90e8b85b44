#include "checkpoint/writer.h"

#include <algorithm>
#include <atomic>

#include "base/hash.h"
#include "base/threads.h"
#include "checkpoint/reader.h"
#include "formats/safetensors.h"
#include "telemetry/log.h"

namespace sauropod::checkpoint {
namespace {

constexpr std::string_view tokenizer_name = "tokenizer.json";
// Hashed and then written while it is still in the processor's cache.
constexpr uint64_t chunk = uint64_t{1} << 20;

// A stored box and where its bytes are now.
struct Source {
  size_t tensor = 0, box = 0;  // in the manifest
  const char* data = nullptr;
  uint64_t bytes = 0;
};

std::string data_file_name(size_t file, int generation) {
  return generation == 1 ? fmt::format("data-{:05}.safetensors", file)
                         : fmt::format("data-{:05}-{}.safetensors", file, generation);
}

// "master/layers.0.mlp.up.weight", with the part in brackets where it is not the whole tensor.
std::string name_in_file(const StoredTensor& tensor, const StoredBox& box) {
  const std::string name = tensor.kind + "/" + tensor.parameter;
  return box.region.shape == tensor.shape ? name : name + to_text(box.region);
}

}  // namespace

// A checkpoint to be: its manifest, complete but for hashes, and the bytes of each data file.
struct Writer::Plan {
  std::string prefix;
  Listed before;  // what lies under the prefix already
  Manifest manifest;
  std::vector<std::vector<Source>> files;
  std::vector<std::string> headers;
  bool write_tokenizer = true;

  void add_tensors(const Snapshot& snapshot, const WriterOptions& options);
  void lay_out(uint64_t file_bytes);
  void name_files();
};

// Cuts the snapshot's boxes into stored boxes and collects those of one tensor.
void Writer::Plan::add_tensors(const Snapshot& snapshot, const WriterOptions& options) {
  std::map<std::pair<std::string, std::string>, size_t> tensors;
  std::vector<Source> sources;
  for (const Box& box : snapshot.boxes) {
    const auto [at, fresh] =
        tensors.emplace(std::pair(box.parameter, box.kind), manifest.tensors.size());
    if (fresh)
      manifest.tensors.push_back({box.parameter, box.kind, box.dtype, box.full_shape, {}});
    StoredTensor& tensor = manifest.tensors[at->second];
    SAUROPOD_CHECK(tensor.dtype == box.dtype && tensor.shape == box.full_shape,
                   "boxes of {} of {} differ in type or full shape", box.kind, box.parameter);
    SAUROPOD_CHECK(box.offset.size() == box.full_shape.size() &&
                       box.shape.size() == box.full_shape.size() && box.data != nullptr,
                   "a box of {} of {} is incomplete", box.kind, box.parameter);
    const uint64_t element = element_size(parse_element(box.dtype));
    const char* data = static_cast<const char*>(box.data);
    const auto limit = static_cast<int64_t>(std::max<uint64_t>(1, options.box_bytes / element));
    for (Region& region : cut({box.offset, box.shape}, limit)) {
      const uint64_t bytes = static_cast<uint64_t>(region.elements()) * element;
      sources.push_back({at->second, tensor.boxes.size(), data, bytes});
      tensor.boxes.emplace_back().region = std::move(region);
      data += bytes;
    }
  }
  // One kind after the other, so that who needs only the weights reads few files; within a kind the
  // wider types first, so that every element is aligned in its file.
  std::map<std::string, size_t> kinds;
  for (const StoredTensor& tensor : manifest.tensors) kinds.emplace(tensor.kind, kinds.size());
  const auto rank = [&](const Source& source) {
    const StoredTensor& tensor = manifest.tensors[source.tensor];
    return std::pair(kinds.at(tensor.kind), 8 - element_size(parse_element(tensor.dtype)));
  };
  std::stable_sort(sources.begin(), sources.end(),
                   [&](const Source& a, const Source& b) { return rank(a) < rank(b); });
  files.emplace_back(std::move(sources));
}

// Divides the one list of sources among files and fixes where each box lies.
void Writer::Plan::lay_out(uint64_t file_bytes) {
  const std::vector<Source> sources = std::move(files.front());
  files.clear();
  uint64_t in_file = 0;
  for (const Source& source : sources) {
    const bool aligned = files.empty() || files.back().empty() ||
                         manifest.tensors[files.back().back().tensor].dtype ==
                             manifest.tensors[source.tensor].dtype ||
                         in_file % 8 == 0;
    if (files.empty() || in_file + source.bytes > file_bytes || !aligned) {
      files.emplace_back();
      in_file = 0;
    }
    files.back().push_back(source);
    in_file += source.bytes;
  }
  for (size_t file = 0; file < files.size(); ++file) {
    std::vector<formats::SafetensorsEntry> entries;
    for (const Source& source : files[file]) {
      const StoredTensor& tensor = manifest.tensors[source.tensor];
      const StoredBox& box = tensor.boxes[source.box];
      entries.push_back(
          {.name = name_in_file(tensor, box), .dtype = tensor.dtype, .shape = box.region.shape});
    }
    headers.push_back(formats::safetensors_header(
        entries, {{"format", "sauropod-checkpoint"}, {"step", std::to_string(manifest.step)}}));
    for (size_t i = 0; i < entries.size(); ++i) {
      const Source& source = files[file][i];
      StoredBox& box = manifest.tensors[source.tensor].boxes[source.box];
      box.file = file;
      box.begin = entries[i].begin;
      box.end = entries[i].end;
      box.hash.assign(32, '0');  // until it is written
    }
    DataFile& described = manifest.files.emplace_back();
    described.bytes = entries.back().end;
    described.header_bytes = headers.back().size();
    described.header_hash = base::hash128(headers.back());
  }
}

// Takes names that nothing under the prefix has yet.
void Writer::Plan::name_files() {
  const auto taken = [&](int generation) {
    for (size_t file = 0; file < files.size(); ++file)
      if (before.files.contains(data_file_name(file, generation))) return true;
    return false;
  };
  int generation = 1;
  while (taken(generation)) ++generation;
  for (size_t file = 0; file < files.size(); ++file)
    manifest.files[file].name = data_file_name(file, generation);
}

Writer::Writer(storage::ObjectStore& store, Retention retention, WriterOptions options)
    : store_(store), retention_(retention), options_(options) {}

Writer::~Writer() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::error("a checkpoint could not be written: {}", error.what());
  }
}

void Writer::write(const Snapshot& snapshot) {
  wait();
  write_now(snapshot);
}

void Writer::write_in_background(Snapshot snapshot) {
  wait();
  thread_ = std::thread([this, snapshot = std::move(snapshot)] {
    try {
      write_now(snapshot);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void Writer::wait() {
  if (thread_.joinable()) thread_.join();
  if (const std::exception_ptr error = std::exchange(error_, nullptr))
    std::rethrow_exception(error);
}

void Writer::write_now(const Snapshot& snapshot) {
  SAUROPOD_CHECK(snapshot.step >= 0);
  remove_leftovers();
  Plan plan;
  plan.prefix = prefix_of_step(snapshot.step);
  plan.before = list_one(store_, plan.prefix);
  plan.manifest.step = snapshot.step;
  plan.manifest.training = snapshot.training;
  plan.manifest.model = snapshot.model;
  plan.manifest.tokenizer_name = tokenizer_name;
  plan.manifest.tokenizer_bytes = snapshot.tokenizer_file.size();
  plan.manifest.tokenizer_hash = base::hash128(snapshot.tokenizer_file);
  plan.add_tensors(snapshot, options_);
  plan.lay_out(options_.file_bytes);
  plan.name_files();
  plan.manifest.to_bytes();  // throws what would otherwise be found after writing everything
  try {
    write_files(snapshot, plan);
  } catch (...) {
    undo(plan);
    throw;
  }
  intact_[snapshot.step] = true;
  try {
    remove_replaced(plan);
    retain(snapshot.step);
  } catch (const base::Error& error) {
    base::fail("the checkpoint of step {} is written, but older files can't be removed: {}",
               snapshot.step, error.what());
  }
}

void Writer::write_files(const Snapshot& snapshot, Plan& plan) {
  const std::string tokenizer_key = plan.prefix + plan.manifest.tokenizer_name;
  if (plan.before.committed() && plan.before.files.contains(plan.manifest.tokenizer_name)) {
    // The checkpoint that is being replaced stays whole until the end, so its tokenizer must serve.
    if (plan.before.files.at(plan.manifest.tokenizer_name) != snapshot.tokenizer_file.size() ||
        store_.get(tokenizer_key, snapshot.tokenizer_file.size()) != snapshot.tokenizer_file)
      base::fail("{} holds a checkpoint with another tokenizer: move it away or write elsewhere",
                 store_.describe(plan.prefix));
    plan.write_tokenizer = false;
  }
  base::parallel_for(plan.files.size(), 1, std::max(1, options_.threads),
                     [&](size_t begin, size_t) { write_data_file(plan, begin); });
  if (plan.write_tokenizer) store_.put(tokenizer_key, snapshot.tokenizer_file);
  store_.put(plan.prefix + std::string(manifest_name), plan.manifest.to_bytes());
}

void Writer::write_data_file(Plan& plan, size_t file) {
  const DataFile& described = plan.manifest.files[file];
  const auto upload = store_.create(plan.prefix + described.name, described.bytes);
  upload->write(plan.headers[file].data(), plan.headers[file].size());
  for (const Source& source : plan.files[file]) {
    base::Hasher hasher;
    for (uint64_t at = 0; at < source.bytes; at += chunk) {
      const size_t size = std::min(chunk, source.bytes - at);
      hasher.update(source.data + at, size);
      upload->write(source.data + at, size);
    }
    plan.manifest.tensors[source.tensor].boxes[source.box].hash = hasher.digest();
  }
  upload->commit();
}

// Removes what a failed write has left, unless its manifest made it into the store after all (an
// error can follow the commit). Errors here would hide the one that matters.
void Writer::undo(const Plan& plan) noexcept {
  try {
    const std::string manifest_key = plan.prefix + std::string(manifest_name);
    if (store_.size(manifest_key) &&
        store_.get(manifest_key, manifest_limit) == plan.manifest.to_bytes())
      return;
    for (const DataFile& file : plan.manifest.files) store_.remove(plan.prefix + file.name);
    if (!plan.before.committed()) store_.remove(plan.prefix + plan.manifest.tokenizer_name);
    store_.remove_unfinished(plan.prefix);
  } catch (...) {  // the next write tries again
  }
}

// Prefixes without a manifest, and unfinished uploads.
void Writer::remove_leftovers() {
  for (const Listed& listed : list_steps(store_))
    if (!listed.committed()) remove_checkpoint(listed);
  store_.remove_unfinished("step-");
}

void Writer::remove_checkpoint(const Listed& listed) {
  store_.remove(listed.prefix + std::string(manifest_name));
  for (const auto& [name, bytes] : listed.files)
    if (name != manifest_name) store_.remove(listed.prefix + name);
  intact_.erase(listed.step);
}

// The data files of the checkpoint of the same step that was there before.
void Writer::remove_replaced(const Plan& plan) {
  for (const auto& [name, bytes] : plan.before.files)
    if (name != manifest_name && name != plan.manifest.tokenizer_name)
      store_.remove(plan.prefix + name);
}

bool Writer::is_intact(const Listed& listed) {
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
void Writer::retain(int64_t newest) {
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

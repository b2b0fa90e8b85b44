#include "checkpoint/part.h"

#include <algorithm>
#include <map>

#include "base/hash.h"
#include "base/threads.h"
#include "checkpoint/catalog.h"
#include "formats/safetensors.h"

namespace sauropod::checkpoint {
namespace {

// Hashed and then written while it is still in the processor's cache.
constexpr uint64_t chunk = uint64_t{1} << 20;

// A stored box and where its bytes are now.
struct Source {
  size_t tensor = 0, box = 0;  // in the part
  const char* data = nullptr;
  uint64_t bytes = 0;
};

// A part to be: its description, complete but for hashes, and the bytes of each data file.
struct Plan {
  Part part;
  std::vector<std::vector<Source>> files;
  std::vector<std::string> headers;
};

// "master/layers.0.mlp.up.weight", with the part in brackets where it is not the whole tensor.
std::string name_in_file(const StoredTensor& tensor, const StoredBox& box) {
  const std::string name = tensor.kind + "/" + tensor.parameter;
  return box.region.shape == tensor.shape ? name : name + to_text(box.region);
}

// Cuts the snapshot's boxes into stored boxes and collects those of one tensor. Returns them in the
// order in which they will lie.
std::vector<Source> add_tensors(const Snapshot& snapshot, uint64_t box_bytes, Part& part) {
  std::map<std::pair<std::string, std::string>, size_t> tensors;
  std::vector<Source> sources;
  for (const Box& box : snapshot.boxes) {
    const auto [at, fresh] =
        tensors.emplace(std::pair(box.parameter, box.kind), part.tensors.size());
    if (fresh) part.tensors.push_back({box.parameter, box.kind, box.dtype, box.full_shape, {}});
    StoredTensor& tensor = part.tensors[at->second];
    SAUROPOD_CHECK(tensor.dtype == box.dtype && tensor.shape == box.full_shape,
                   "boxes of {} of {} differ in type or full shape", box.kind, box.parameter);
    SAUROPOD_CHECK(box.offset.size() == box.full_shape.size() &&
                       box.shape.size() == box.full_shape.size() && box.data != nullptr,
                   "a box of {} of {} is incomplete", box.kind, box.parameter);
    const uint64_t element = element_size(parse_element(box.dtype));
    const char* data = static_cast<const char*>(box.data);
    const auto limit = static_cast<int64_t>(std::max<uint64_t>(1, box_bytes / element));
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
  for (const StoredTensor& tensor : part.tensors) kinds.emplace(tensor.kind, kinds.size());
  const auto order = [&](const Source& source) {
    const StoredTensor& tensor = part.tensors[source.tensor];
    return std::pair(kinds.at(tensor.kind), 8 - element_size(parse_element(tensor.dtype)));
  };
  std::stable_sort(sources.begin(), sources.end(),
                   [&](const Source& a, const Source& b) { return order(a) < order(b); });
  return sources;
}

// Divides the sources among files.
std::vector<std::vector<Source>> divide(const std::vector<Source>& sources, const Part& part,
                                        uint64_t file_bytes) {
  std::vector<std::vector<Source>> files;
  uint64_t in_file = 0;
  for (const Source& source : sources) {
    const bool aligned = files.empty() || part.tensors[files.back().back().tensor].dtype ==
                                              part.tensors[source.tensor].dtype ||
                         in_file % 8 == 0;
    if (files.empty() || in_file + source.bytes > file_bytes || !aligned) {
      files.emplace_back();
      in_file = 0;
    }
    files.back().push_back(source);
    in_file += source.bytes;
  }
  return files;
}

// Fixes where each box lies, and with it the header of each file.
void lay_out(const PartPlace& place, int64_t step, Plan& plan) {
  for (size_t file = 0; file < plan.files.size(); ++file) {
    std::vector<formats::SafetensorsEntry> entries;
    for (const Source& source : plan.files[file]) {
      const StoredTensor& tensor = plan.part.tensors[source.tensor];
      const StoredBox& box = tensor.boxes[source.box];
      entries.push_back(
          {.name = name_in_file(tensor, box), .dtype = tensor.dtype, .shape = box.region.shape});
    }
    plan.headers.push_back(formats::safetensors_header(
        entries, {{"format", "sauropod-checkpoint"}, {"step", std::to_string(step)}}));
    for (size_t i = 0; i < entries.size(); ++i) {
      const Source& source = plan.files[file][i];
      StoredBox& box = plan.part.tensors[source.tensor].boxes[source.box];
      box.file = file;
      box.begin = entries[i].begin;
      box.end = entries[i].end;
    }
    const std::string& header = plan.headers.back();
    plan.part.files.push_back({.name = data_file_name(place.attempt, place.rank, file),
                               .bytes = entries.back().end,
                               .header_bytes = header.size(),
                               .header_hash = base::hash128(header)});
  }
}

void write_file(storage::ObjectStore& store, const std::string& prefix, Plan& plan, size_t file,
                const std::atomic<bool>& cancelled) {
  const DataFile& described = plan.part.files[file];
  const auto upload = store.create(prefix + described.name, described.bytes);
  upload->write(plan.headers[file].data(), plan.headers[file].size());
  for (const Source& source : plan.files[file]) {
    base::Hasher hasher;
    for (uint64_t at = 0; at < source.bytes; at += chunk) {
      if (cancelled) base::fail("the checkpoint was given up because another rank failed");
      const size_t size = std::min(chunk, source.bytes - at);
      hasher.update(source.data + at, size);
      upload->write(source.data + at, size);
    }
    plan.part.tensors[source.tensor].boxes[source.box].hash = hasher.digest();
  }
  upload->commit();
}

}  // namespace

Part write_part(storage::ObjectStore& store, const PartPlace& place, const Snapshot& snapshot,
                const WriterOptions& options, const std::atomic<bool>& cancelled) {
  Plan plan;
  const std::vector<Source> sources = add_tensors(snapshot, options.box_bytes, plan.part);
  plan.files = divide(sources, plan.part, options.file_bytes);
  lay_out(place, snapshot.step, plan);
  base::parallel_for(plan.files.size(), 1, std::max(1, options.threads), [&](size_t begin, size_t) {
    write_file(store, place.prefix, plan, begin, cancelled);
  });
  return std::move(plan.part);
}

void remove_part(storage::ObjectStore& store, const PartPlace& place) {
  const std::string begin = place.prefix + data_file_begin(place.attempt, place.rank);
  for (const storage::ObjectInfo& object : store.list(begin)) store.remove(object.key);
}

}  // namespace sauropod::checkpoint

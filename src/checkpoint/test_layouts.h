// For tests: ways to lay a few tensors out over ranks, and what each rank then writes and reads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/flat.h"
#include "checkpoint/test_support.h"

namespace sauropod::checkpoint {

inline const std::vector<const char*>& test_kinds() {
  static const std::vector<const char*> kinds{"master", "moment1", "moment2"};
  return kinds;
}

// The first is a vocabulary, which is split by rows and padded; "bias" and "scalar" are replicated.
inline const std::vector<TestTensor>& layout_tensors() {
  static const std::vector<TestTensor> tensors{{"embedding", {50, 8}}, {"weight", {24, 12}},
                                               {"bias", {17}},         {"cube", {4, 8, 4}},
                                               {"six", {6}},           {"scalar", {}}};
  return tensors;
}

struct Layout {
  std::string name;
  int tensor_parallel = 1;
  int data_parallel = 1;
  int stages = 1;         // the tensors are divided among them, in turn
  bool columns = false;   // split by the last dimension instead of the first
  bool sharded = false;   // each data-parallel rank holds a range of the flat buffer (ZeRO-1)
  int64_t vocabulary = 50;  // rows of the embedding with padding

  int ranks() const { return tensor_parallel * data_parallel * stages; }
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {.name = "one rank"},
      {.name = "2 by rows", .tensor_parallel = 2, .vocabulary = 52},
      {.name = "4 by columns", .tensor_parallel = 4, .columns = true, .vocabulary = 64},
      {.name = "4 replicas", .data_parallel = 4},
      {.name = "flat thirds", .data_parallel = 3, .sharded = true},
      {.name = "2 by rows, sharded by 3", .tensor_parallel = 2, .data_parallel = 3,
       .sharded = true, .vocabulary = 54},
      {.name = "4 by rows, the last with nothing but padding", .tensor_parallel = 4,
       .vocabulary = 80},
      {.name = "2 stages of 2 by columns, sharded by 2", .tensor_parallel = 2, .data_parallel = 2,
       .stages = 2, .columns = true, .sharded = true, .vocabulary = 50},
  };
  return all;
}

// What one rank of a layout has: a flat buffer, of which it keeps a range.
class RankLayout {
 public:
  RankLayout(const Layout& layout, int rank)
      : layout_(layout),
        tensor_rank_(rank % layout.tensor_parallel),
        data_rank_(rank / layout.tensor_parallel % layout.data_parallel) {
    const int stage = rank / layout.tensor_parallel / layout.data_parallel;
    for (size_t i = 0; i < layout_tensors().size(); ++i)
      if (static_cast<int>(i) % layout.stages == stage) add(layout_tensors()[i]);
    range_ = layout.sharded ? share_of(size_, data_rank_, layout.data_parallel)
                            : ElementRange{0, size_};
  }
  const std::vector<FlatEntry>& entries() const { return entries_; }
  ElementRange range() const { return range_; }

  // The right content of the range, with 0 in gaps and padding.
  std::vector<float> content(const std::string& kind, int64_t step) const {
    std::vector<float> flat(static_cast<size_t>(size_), 0);
    for (const FlatEntry& entry : entries_) {
      int64_t place = entry.begin;
      const auto& [full, region] = entry.slice;
      Dimensions index(full.size(), 0);
      for (int64_t i = 0; i < region.elements(); ++i, ++place) {
        int64_t element = 0;
        bool padding = false;
        for (size_t d = 0; d < full.size(); ++d) {
          padding |= region.offset[d] + index[d] >= full[d];
          element = element * full[d] + region.offset[d] + index[d];
        }
        if (!padding)
          flat[static_cast<size_t>(place)] = element_of(entry.parameter, kind, step, element);
        for (size_t d = full.size(); d-- > 0;) {
          if (++index[d] < region.shape[d]) break;
          index[d] = 0;
        }
      }
    }
    return {flat.begin() + range_.begin, flat.begin() + range_.end};
  }

  // What this rank writes: of what others hold too, its share.
  Snapshot snapshot(int64_t step) const {
    Snapshot snapshot = make_snapshot(step);
    snapshot.boxes.clear();
    auto values = std::make_shared<std::vector<std::vector<float>>>();
    for (const char* kind : test_kinds()) {
      values->push_back(content(kind, step));
      for (size_t i = 0; i < entries_.size(); ++i) {
        // Whoever holds the same elements takes an equal share; a sharded range has no replicas
        // among the data-parallel ranks, and of replicated tensors the first tensor-parallel rank's
        // counts.
        if (layout_.sharded) {
          if (replicated_[i] && tensor_rank_ > 0) continue;
          add_range(snapshot, kind, "F32", {entries_[i]}, range_, values->back().data());
          continue;
        }
        const int64_t replicas = layout_.data_parallel * (replicated_[i] ? layout_.tensor_parallel : 1);
        const int64_t replica = replicated_[i]
                                    ? data_rank_ * layout_.tensor_parallel + tensor_rank_
                                    : data_rank_;
        ElementRange share =
            share_of(entries_[i].slice.region.elements(), replica, replicas);
        share.begin += entries_[i].begin;
        share.end += entries_[i].begin;
        add_range(snapshot, kind, "F32", {entries_[i]}, share, values->back().data() + share.begin);
      }
    }
    snapshot.owner = values;
    return snapshot;
  }

 private:
  void add(const TestTensor& tensor) {
    Slice slice{tensor.shape, {Dimensions(tensor.shape.size(), 0), tensor.shape}};
    const bool replicated = tensor.shape.size() < 2;
    if (!replicated) {
      const bool vocabulary = tensor.parameter == "embedding";
      if (vocabulary) slice.region.shape[0] = layout_.vocabulary;
      const size_t d = vocabulary || !layout_.columns ? 0 : tensor.shape.size() - 1;
      slice.region.shape[d] /= layout_.tensor_parallel;
      slice.region.offset[d] = tensor_rank_ * slice.region.shape[d];
    }
    if (tensor.parameter != "bias") size_ = (size_ + 15) / 16 * 16;  // it continues a group
    entries_.push_back({tensor.parameter, slice, size_});
    replicated_.push_back(replicated);
    size_ += slice.region.elements();
  }

  const Layout& layout_;
  const int64_t tensor_rank_, data_rank_;
  std::vector<FlatEntry> entries_;
  std::vector<bool> replicated_;
  int64_t size_ = 0;
  ElementRange range_;
};

}  // namespace sauropod::checkpoint

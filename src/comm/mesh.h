// The ranks of a world arranged by what they split: tensors, stages of the pipeline, the data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/world.h"

namespace sauropod::comm {

// tensor · data · pipeline = the world's size.
struct Layout {
  int tensor = 1;
  int data = 1;
  int pipeline = 1;
  int world() const { return tensor * data * pipeline; }
  bool operator==(const Layout&) const = default;
};

// A rank's place in each dimension.
struct Coordinates {
  int tensor = 0;
  int data = 0;
  int pipeline = 0;  // the stage
  bool operator==(const Coordinates&) const = default;
};

// Ranks count through tensor first, then data, then pipeline. A tensor group exchanges whole
// activations several times a layer, so its ranks are neighbours and share a node; a data group reduces
// gradients once a step; a pair of neighbouring stages exchanges one activation a microbatch, the least
// of the three, so stages lie furthest apart.
int rank_of(const Layout& layout, const Coordinates& at);
Coordinates coordinates_of(const Layout& layout, int rank);

// "tensor 2 · data 4 · pipeline 1"
std::string describe(const Layout& layout);

// The layout of a world; throws base::Error (usage) with the nearest that exist when tensor · pipeline
// doesn't divide it.
Layout make_layout(int world, int tensor, int pipeline);
// At most `count` layouts of a world, those nearest to the asked one first (by the ratios of their tensor
// and pipeline sizes).
std::vector<Layout> nearest_layouts(int world, int tensor, int pipeline, int count = 3);

struct MeshOptions {
  int tensor = 1;
  int pipeline = 1;
  bool tensor_across_nodes = false;  // allow it
};

// The groups this rank belongs to. Made by all ranks of the world at once. Owns its groups; the world must
// outlive the making, not the mesh.
class Mesh {
 public:
  // Throws base::Error (usage) for a layout that doesn't divide the world, and for tensor groups that cross
  // nodes unless allowed.
  Mesh(World& world, const MeshOptions& options);

  const Layout& layout() const { return layout_; }
  const Coordinates& coordinates() const { return coordinates_; }
  bool first_stage() const { return coordinates_.pipeline == 0; }
  bool last_stage() const { return coordinates_.pipeline == layout_.pipeline - 1; }

  // Groups of one rank are there too. A rank's place in a group is its coordinate.
  Communicator& world() const { return *world_; }
  Communicator& tensor() const { return *tensor_; }
  Communicator& pipeline() const { return *pipeline_; }
  Communicator& data() const { return *data_; }
  // The first and the last stage at the same tensor and data coordinates, which share the tied embedding
  // (one rank when the pipeline has one stage). Null between them.
  Communicator* embedding() const { return embedding_.get(); }

 private:
  Layout layout_;
  Coordinates coordinates_;
  std::unique_ptr<Communicator> world_, tensor_, pipeline_, data_, embedding_;
};

}  // namespace sauropod::comm

#include "comm/mesh.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace sauropod::comm {

int rank_of(const Layout& layout, const Coordinates& at) {
  return at.tensor + layout.tensor * (at.data + layout.data * at.pipeline);
}

Coordinates coordinates_of(const Layout& layout, int rank) {
  return {.tensor = rank % layout.tensor,
          .data = rank / layout.tensor % layout.data,
          .pipeline = rank / (layout.tensor * layout.data)};
}

std::string describe(const Layout& layout) {
  return fmt::format("tensor {} · data {} · pipeline {}", layout.tensor, layout.data, layout.pipeline);
}

std::vector<Layout> nearest_layouts(int world, int tensor, int pipeline, int count) {
  struct Candidate {
    double distance;
    Layout layout;
  };
  std::vector<Candidate> candidates;
  const auto distance = [](int a, int b) {
    return std::abs(std::log2(static_cast<double>(a) / std::max(b, 1)));
  };
  for (int t = 1; t <= world; ++t) {
    if (world % t != 0) continue;
    for (int p = 1; p <= world / t; ++p)
      if (world / t % p == 0)
        candidates.push_back({distance(t, tensor) + distance(p, pipeline),
                              {.tensor = t, .data = world / t / p, .pipeline = p}});
  }
  // Among equals the smaller tensor size comes first: it costs less communication.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.distance < b.distance - 1e-9; });
  std::vector<Layout> layouts;
  for (const Candidate& candidate : candidates) {
    if (static_cast<int>(layouts.size()) == count) break;
    layouts.push_back(candidate.layout);
  }
  return layouts;
}

Layout make_layout(int world, int tensor, int pipeline) {
  if (tensor >= 1 && pipeline >= 1 && world % tensor == 0 && world / tensor % pipeline == 0)
    return {.tensor = tensor, .data = world / tensor / pipeline, .pipeline = pipeline};
  std::string near;
  for (const Layout& layout : nearest_layouts(world, tensor, pipeline))
    near += fmt::format("\n  {}", describe(layout));
  base::fail_usage("parallel.tensor = {} with parallel.pipeline = {} doesn't divide {} rank{}. Nearest that do:{}",
                   tensor, pipeline, world, world == 1 ? "" : "s", near);
}

namespace {

void refuse_crossing(const World& world, const Layout& layout) {
  for (int first = 0; first < layout.world(); first += layout.tensor)
    for (int rank = first + 1; rank < first + layout.tensor; ++rank) {
      const Place& a = world.places()[first];
      const Place& b = world.places()[rank];
      if (a.node != b.node)
        base::fail_usage(
            "parallel.tensor = {}: ranks {} ({}) and {} ({}) would share a tensor group, and they are on "
            "different hosts, between which its traffic is slow. Choose a size that divides the ranks of a "
            "host, or allow it with parallel.tensor_across_nodes = true",
            layout.tensor, first, a.host, rank, b.host);
    }
}

}  // namespace

Mesh::Mesh(World& world, const MeshOptions& options)
    : layout_(make_layout(world.size(), options.tensor, options.pipeline)),
      coordinates_(coordinates_of(layout_, world.rank())) {
  if (!options.tensor_across_nodes) refuse_crossing(world, layout_);
  // The ranks whose coordinates differ from this rank's only where `vary` puts i.
  const auto ranks = [&](int count, const std::function<void(Coordinates&, int)>& vary) {
    std::vector<int> members;
    for (int i = 0; i < count; ++i) {
      Coordinates at = coordinates_;
      vary(at, i);
      members.push_back(rank_of(layout_, at));
    }
    return members;
  };
  std::vector<int> all(static_cast<size_t>(world.size()));
  for (int i = 0; i < world.size(); ++i) all[i] = i;
  world_ = world.make_group("world", all);
  tensor_ = world.make_group("tensor", ranks(layout_.tensor, [](auto& at, int i) { at.tensor = i; }));
  pipeline_ =
      world.make_group("pipeline", ranks(layout_.pipeline, [](auto& at, int i) { at.pipeline = i; }));
  data_ = world.make_group("data", ranks(layout_.data, [](auto& at, int i) { at.data = i; }));
  const int last = layout_.pipeline - 1;
  if (first_stage() || last_stage())
    embedding_ = world.make_group(
        "embedding", ranks(last == 0 ? 1 : 2, [&](auto& at, int i) { at.pipeline = i == 0 ? 0 : last; }));
}

}  // namespace sauropod::comm

// The mesh, in worlds of one rank and in pretended ones.
#include "comm/mesh.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <set>

namespace sauropod::comm {
namespace {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Layout, NumbersRanksThroughTensorThenDataThenPipeline) {
  const Layout layout{.tensor = 2, .data = 3, .pipeline = 4};
  std::set<int> seen;
  for (int p = 0; p < 4; ++p)
    for (int d = 0; d < 3; ++d)
      for (int t = 0; t < 2; ++t) {
        const Coordinates at{.tensor = t, .data = d, .pipeline = p};
        const int rank = rank_of(layout, at);
        EXPECT_EQ(coordinates_of(layout, rank), at);
        seen.insert(rank);
      }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(rank_of(layout, {.tensor = 1, .data = 0, .pipeline = 0}), 1);
  EXPECT_EQ(rank_of(layout, {.tensor = 0, .data = 1, .pipeline = 0}), 2);
  EXPECT_EQ(rank_of(layout, {.tensor = 0, .data = 0, .pipeline = 1}), 6);
}

TEST(Layout, RefusesWhatDoesNotDivideAndNamesTheNearest) {
  EXPECT_EQ(make_layout(8, 2, 2), (Layout{.tensor = 2, .data = 2, .pipeline = 2}));
  const std::string error = error_of([] { make_layout(8, 3, 2); });
  EXPECT_NE(error.find("tensor = 3"), std::string::npos) << error;
  EXPECT_NE(error.find("tensor 4 · data 1 · pipeline 2"), std::string::npos) << error;
  EXPECT_NE(error_of([] { make_layout(8, 0, 1); }).find("tensor = 0"), std::string::npos);
  EXPECT_NE(error_of([] { make_layout(4, 2, 4); }).find("doesn't divide 4 ranks"), std::string::npos);
  for (const Layout& layout : nearest_layouts(12, 5, 2, 100)) EXPECT_EQ(layout.world(), 12);
  EXPECT_EQ(nearest_layouts(12, 5, 2, 100).size(), 18u);  // all factorisations into three
  EXPECT_EQ(nearest_layouts(8, 2, 2, 1).front(), (Layout{.tensor = 2, .data = 2, .pipeline = 2}));
}

TEST(Mesh, FakeWorldOfManyRanksHasTheGroupsOfEveryRank) {
  for (int rank = 0; rank < 48; ++rank) {
    auto world = World::fake(rank, 48, 8);
    const Mesh mesh(*world, {.tensor = 4, .pipeline = 3});
    const Coordinates at = coordinates_of(mesh.layout(), rank);
    EXPECT_EQ(mesh.tensor().size(), 4);
    EXPECT_EQ(mesh.tensor().rank(), at.tensor);
    EXPECT_EQ(mesh.data().size(), 4);
    EXPECT_EQ(mesh.data().rank(), at.data);
    EXPECT_EQ(mesh.pipeline().rank(), at.pipeline);
    EXPECT_EQ(mesh.pipeline().ranks()[at.pipeline], rank);
    EXPECT_EQ(mesh.world().size(), 48);
    EXPECT_EQ(mesh.embedding() != nullptr, at.pipeline != 1);
    if (mesh.embedding()) {
      EXPECT_EQ(mesh.embedding()->ranks(), (std::vector<int>{rank % 16, 32 + rank % 16}));
    }
  }
}

TEST(Mesh, RefusesTensorGroupsAcrossHosts) {
  auto world = World::fake(0, 12, 3);
  const std::string error = error_of([&] { Mesh mesh(*world, {.tensor = 2}); });
  EXPECT_NE(error.find("ranks 2 (node-0) and 3 (node-1)"), std::string::npos) << error;
  EXPECT_NO_THROW(Mesh(*world, {.tensor = 2, .tensor_across_nodes = true}));
  EXPECT_NO_THROW(Mesh(*world, {.tensor = 3}));
}

TEST(Fake, RecordsCallsOnTheMetaDevice) {
  auto world = World::fake(5, 512);
  auto group = world->make_group("data", {1, 5, 9, 13});
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  group->all_reduce("norm", at::empty({7}, meta)).wait();
  group->reduce_scatter("gradients", at::empty({40}, meta), at::empty({10}, meta)).wait();
  group->exchange("activation", {{0, at::empty({2, 3}, meta)}}, {{3, at::empty({5}, meta)}}).wait();
  const auto calls = world->fake_calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[1].label, "gradients");
  EXPECT_EQ(calls[1].group, "data");
  EXPECT_EQ(calls[1].size, 4);
  EXPECT_EQ(calls[1].bytes, 80);
  EXPECT_EQ(calls[2].kind, Kind::exchange);
  EXPECT_EQ(calls[2].bytes, 22);
}

TEST(Single, CopiesAndCounts) {
  auto world = World::start({}, {});
  const Mesh mesh(*world, {});
  ASSERT_TRUE(mesh.embedding());
  EXPECT_EQ(mesh.embedding()->size(), 1);
  const at::Tensor input = at::arange(6, at::kFloat);
  at::Tensor output = at::zeros({6}, at::kFloat);
  mesh.data().all_gather("gather", input, output).wait();
  EXPECT_TRUE(output.equal(input));
  at::Tensor scattered = at::zeros({6}, at::kFloat);
  mesh.data().reduce_scatter("scatter", input, scattered, {0, 6}).wait();
  EXPECT_TRUE(scattered.equal(input));
  mesh.data().all_reduce("sum", output).wait();
  EXPECT_TRUE(output.equal(input));
  mesh.data().broadcast("send", output, 0).wait();
  mesh.data().barrier("meet").wait();
  const auto statistics = mesh.data().statistics();
  ASSERT_EQ(statistics.size(), 5u);
  EXPECT_EQ(statistics[0].label, "gather");
  EXPECT_EQ(statistics[0].calls, 1);
  EXPECT_EQ(statistics[0].bytes, 24);
}

TEST(Single, RefusesWrongTensors) {
  auto group = World::start({}, {})->make_group("g", {0});
  const at::Tensor matrix = at::zeros({4, 4});
  EXPECT_THROW(group->all_reduce("x", matrix.t()), base::Bug);
  EXPECT_THROW(group->all_reduce("x", matrix.to(at::kHalf)), base::Bug);
  EXPECT_THROW(group->all_gather("x", at::zeros({3}), at::zeros({4}), {0, 4}), base::Bug);
  EXPECT_THROW(group->all_gather("x", at::zeros({4}), at::zeros({4}), {0, 2, 4}), base::Bug);
  EXPECT_THROW(group->all_gather("x", at::zeros({4}), at::zeros({4}, at::kDouble)), base::Bug);
  EXPECT_THROW(group->broadcast("x", matrix, 1), base::Bug);
  EXPECT_THROW(group->exchange("x", {{0, matrix}}, {}), base::Bug);
}

TEST(HandleDeathTest, EndsTheProgramWhenNobodyWaited) {
  auto group = World::start({}, {})->make_group("g", {0});
  EXPECT_DEATH(group->barrier("forgotten"), "'forgotten' was dropped without wait");
  EXPECT_THROW(
      {
        Handle handle = group->barrier("unwound");
        base::fail("something else");
      },
      base::Error);
}

}  // namespace
}  // namespace sauropod::comm

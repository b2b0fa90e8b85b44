// Every collective in every type against a plain computation, over shared memory and over Gloo.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "comm/mesh.h"
#include "comm/test_support.h"

namespace sauropod::comm {
namespace {

using test::run_ranks;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kInt, at::kLong, at::kByte};

// What a rank contributes: [n], the same wherever it is computed.
at::Tensor given(int rank, int64_t n, at::ScalarType type, int64_t seed = 0) {
  at::Tensor values = at::arange(n, at::kDouble);
  values = (values * 0.7310585 + rank * 3.14159 + seed * 0.577).sin();
  if (type == at::kByte) return (values.abs() * 100).to(type);
  if (type == at::kInt || type == at::kLong) return (values * 1e6).to(type);
  return values.to(type);
}

// The sum in rank order, as communicator.h defines it.
at::Tensor sum_of(const std::vector<at::Tensor>& parts) {
  const at::ScalarType type = parts[0].scalar_type();
  const at::ScalarType in = type == at::kBFloat16 ? at::kFloat : type;
  at::Tensor sum = parts[0].to(in, false, true);
  for (size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i].to(in));
  return sum.to(type);
}

std::vector<at::Tensor> all_given(int size, int64_t n, at::ScalarType type, int64_t seed = 0) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(given(rank, n, type, seed));
  return parts;
}

void expect_same(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  EXPECT_TRUE(a.equal(b)) << what;
}

void check_all_reduce(Communicator& group, at::ScalarType type) {
  for (const int64_t n : {0, 1, 5, 1000, 16384, 16385, 70007}) {
    const auto parts = all_given(group.size(), n, type);
    at::Tensor sum = parts[group.rank()].clone(), max = sum.clone();
    group.all_reduce("sum", sum).wait();
    group.all_reduce("max", max, Reduce::max).wait();
    if (n == 0) continue;
    expect_same(sum, sum_of(parts), fmt::format("sum of {} {}", n, toString(type)));
    at::Tensor expected = parts[0];
    for (const auto& part : parts) expected = at::maximum(expected, part);
    expect_same(max, expected, fmt::format("maximum of {} {}", n, toString(type)));
  }
}

std::vector<int64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// Unequal parts of 6 elements, empty parts, large ones.
std::vector<std::vector<int64_t>> lengths_for(int size) {
  std::vector<std::vector<int64_t>> all(4, std::vector<int64_t>(static_cast<size_t>(size)));
  for (int i = 0; i < size; ++i) {
    all[0][i] = 6 * (i + 1) / size - 6 * i / size;
    all[1][i] = i == size - 1 ? 5 : 0;
    all[2][i] = i % 2 ? 0 : 30001;
    all[3][i] = 60000 * i + 3;
  }
  return all;
}

void check_gather_and_scatter(Communicator& group, at::ScalarType type) {
  for (const auto& lengths : lengths_for(group.size())) {
    const auto offsets = offsets_of(lengths);
    const auto parts = all_given(group.size(), offsets.back(), type);
    const int64_t begin = offsets[group.rank()], end = offsets[group.rank() + 1];
    const at::Tensor expected = sum_of(parts).slice(0, begin, end);

    at::Tensor input = parts[group.rank()].clone(), output = at::zeros({end - begin}, type);
    group.reduce_scatter("scatter", input, output, offsets).wait();
    expect_same(output, expected, fmt::format("reduce-scatter of {}", toString(type)));
    expect_same(input, parts[group.rank()], "the input stays");
    group.reduce_scatter("in place", input, input.slice(0, begin, end), offsets).wait();
    expect_same(input.slice(0, begin, end), expected, "reduce-scatter in place");

    at::Tensor whole = at::zeros({offsets.back()}, type);
    group.all_gather("gather", output, whole, offsets).wait();
    expect_same(whole, sum_of(parts), fmt::format("all-gather of {}", toString(type)));
    at::Tensor own = at::zeros({offsets.back()}, type);
    own.slice(0, begin, end).copy_(output);
    group.all_gather("in place", own.slice(0, begin, end), own, offsets).wait();
    expect_same(own, whole, "all-gather in place");
  }
  const int64_t n = 1237;
  const auto parts = all_given(group.size(), n * group.size(), type);
  at::Tensor output = at::zeros({n}, type), whole = at::zeros({n * group.size()}, type);
  group.reduce_scatter("equal", parts[group.rank()], output).wait();
  group.all_gather("equal", output, whole).wait();
  expect_same(whole, sum_of(parts), "equal parts");
}

void check_rest(Communicator& group, at::ScalarType type) {
  for (int root = 0; root < group.size(); ++root) {
    at::Tensor tensor = given(group.rank(), 20003, type, root);
    group.broadcast("broadcast", tensor, root).wait();
    expect_same(tensor, given(root, 20003, type, root), "broadcast");
  }
  // To and from every other rank at once, more than any buffer holds.
  std::vector<Transfer> sends, receives;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    for (const int64_t n : {type == at::kFloat ? 700001 : 7001, 3, 0}) {
      sends.push_back({peer, given(group.rank() * 8 + peer, n, type)});
      receives.push_back({peer, at::zeros({n}, type)});
    }
  }
  group.exchange("all to all", sends, receives).wait();
  for (const auto& [peer, tensor] : receives)
    expect_same(tensor, given(peer * 8 + group.rank(), tensor.numel(), type), "exchange");
  group.barrier("barrier").wait();
}

// Groups of 2, 3 and 4 of four ranks; those that aren't members wait.
void check_everything(World& world) {
  auto all = world.make_group("all", {0, 1, 2, 3});
  for (const std::vector<int>& members : {std::vector<int>{3, 1}, {0, 2, 3}, {0, 1, 2, 3}}) {
    if (std::find(members.begin(), members.end(), world.rank()) != members.end()) {
      auto group = world.make_group("some", members);
      EXPECT_EQ(group->ranks(), members);
      EXPECT_EQ(members[group->rank()], world.rank());
      for (const at::ScalarType type : kTypes) {
        check_all_reduce(*group, type);
        check_gather_and_scatter(*group, type);
        check_rest(*group, type);
      }
    }
    all->barrier("next").wait();
  }
}

TEST(Collectives, OverSharedMemory) {
  run_ranks(4, [](World& world) {
    EXPECT_EQ(world.make_group("g", {0, 1, 2, 3})->backend(), "shared memory");
    check_everything(world);
  });
}

test::RunOptions over_gloo() {
  test::RunOptions options;
  options.communication.shared_memory = false;
  return options;
}

TEST(Collectives, OverGloo) {
  run_ranks(
      4,
      [](World& world) {
        EXPECT_EQ(world.make_group("g", {0, 1, 2, 3})->backend(), "gloo");
        check_everything(world);
      },
      over_gloo());
}

// Two ranks on each of two hosts, by the names that the launcher gives them.
TEST(Collectives, TwoHosts) {
  test::RunOptions options;
  options.environment = [](int rank) {
    return std::map<std::string, std::string>{{"SAUROPOD_HOST", rank < 2 ? "a" : "b"},
                                              {"SAUROPOD_LOCAL_RANK", std::to_string(rank % 2)},
                                              {"SAUROPOD_LOCAL_SIZE", "2"}};
  };
  run_ranks(
      4,
      [](World& world) {
        EXPECT_EQ(world.local_rank(), world.rank() % 2);
        EXPECT_EQ(world.local_size(), 2);
        EXPECT_EQ(world.places()[2].host, "b");
        const Mesh mesh(world, {.tensor = 2, .pipeline = 2});
        EXPECT_EQ(mesh.tensor().backend(), "shared memory");
        EXPECT_EQ(mesh.pipeline().backend(), "gloo");
        EXPECT_EQ(mesh.data().backend(), "single");
        EXPECT_EQ(mesh.world().backend(), "gloo");
        for (Communicator* group : {&mesh.tensor(), &mesh.pipeline(), &mesh.world(), mesh.embedding()}) {
          check_all_reduce(*group, at::kFloat);
          check_gather_and_scatter(*group, at::kFloat);
          check_rest(*group, at::kFloat);
        }
        EXPECT_THROW(Mesh(world, {.tensor = 4}), base::Error);
      },
      options);
}

// A thread's worth of calls under way at once, waited for in the wrong order.
void check_overlap(World& world) {
  auto group = world.make_group("all", {0, 1, 2});
  auto other = world.make_group("other", {2, 1, 0});
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> tensors;
    std::vector<Handle> handles;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back(given(world.rank(), i % 2 ? 60000 : 100, at::kFloat, i));
      handles.push_back((i % 3 ? group : other)->all_reduce(fmt::format("sum {}", i), tensors.back()));
    }
    const int next = (world.rank() + 1) % 3, before = (world.rank() + 2) % 3;
    at::Tensor sent = given(world.rank(), 500000, at::kFloat), received = at::zeros({500000});
    handles.push_back(group->exchange("ring", {{next, sent}}, {{before, received}}));
    for (size_t i = handles.size(); i-- > 0;) handles[i].wait();
    expect_same(received, given(before, 500000, at::kFloat), "ring");
    for (int i = 0; i < 6; ++i) {
      auto parts = all_given(3, tensors[i].numel(), at::kFloat, i);
      if (i % 3 == 0) std::reverse(parts.begin(), parts.end());  // that group's own order of ranks
      expect_same(tensors[i], sum_of(parts), fmt::format("sum {}", i));
    }
  }
  for (const auto& calls : group->statistics()) EXPECT_EQ(calls.calls, 20) << calls.label;
}

TEST(Overlap, OverSharedMemory) { run_ranks(3, check_overlap); }
TEST(Overlap, OverGloo) { run_ranks(3, check_overlap, over_gloo()); }

// A rank posts what it will receive late before what its peer needs first.
void check_early_receives(World& world) {
  auto group = world.make_group("pipeline", {0, 1, 2});
  at::Tensor forward = given(0, 400000, at::kFloat), backward = given(2, 400000, at::kFloat);
  at::Tensor a = at::zeros({400000}), b = at::zeros({400000});
  if (world.rank() == 1) {
    Handle gradient = group->exchange("gradient", {}, {{2, b}});
    Handle activation = group->exchange("activation", {}, {{0, a}});
    activation.wait();
    Handle on = group->exchange("activation on", {{2, a}}, {});
    gradient.wait();
    on.wait();
    group->exchange("gradient on", {{0, b}}, {}).wait();
  } else if (world.rank() == 0) {
    Handle gradient = group->exchange("gradient", {}, {{1, b}});
    group->exchange("activation", {{1, forward}}, {}).wait();
    gradient.wait();
    expect_same(b, backward, "gradient");
  } else {
    group->exchange("activation", {}, {{1, a}}).wait();
    expect_same(a, forward, "activation");
    group->exchange("gradient", {{1, backward}}, {}).wait();
  }
}

TEST(EarlyReceives, OverSharedMemory) { run_ranks(3, check_early_receives); }
TEST(EarlyReceives, OverGloo) { run_ranks(3, check_early_receives, over_gloo()); }

size_t entries(const char* folder) {
  size_t count = 0;
  DIR* open = opendir(folder);
  while (readdir(open)) ++count;
  closedir(open);
  return count;
}

void check_rebuilding(World& world) {
  size_t descriptors = 0, threads = 0;
  for (int round = 0; round < 50; ++round) {
    auto all = world.make_group("all", {0, 1});
    auto again = world.make_group("all", {0, 1});
    at::Tensor x = given(world.rank(), 20000, at::kFloat), y = at::zeros({10});
    all->all_reduce("x", x).wait();
    again->exchange("y", {{1 - world.rank(), y}}, {{1 - world.rank(), y.clone()}}).wait();
    all->barrier("end").wait();
    all.reset(), again.reset();
    if (round == 5) descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  }
  EXPECT_LE(entries("/proc/self/fd"), descriptors);
  EXPECT_LE(entries("/proc/self/task"), threads + 1);  // one that speaks to the store may be at it
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    EXPECT_EQ(line.find("memfd:sauropod"), std::string::npos) << line;
}

TEST(Rebuilding, OverSharedMemory) { run_ranks(2, check_rebuilding); }
TEST(Rebuilding, OverGloo) { run_ranks(2, check_rebuilding, over_gloo()); }

}  // namespace
}  // namespace sauropod::comm

// Layouts that can't be, the division of layers and of flat buffers.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "parallel/options.h"
#include "parallel/placement.h"
#include "parallel/shards.h"
#include "parallel/stages.h"

namespace sauropod::parallel {
namespace {

model::ModelOptions jumbo() {
  model::ModelOptions m;
  m.layers = 76;
  m.hidden = 13824;
  m.heads = 96;
  m.context = 2048;
  m.vocabulary = 262144;
  m.resolve(0);
  return m;
}

std::string refusal(const ParallelOptions& options, const model::ModelOptions& m, int64_t world) {
  try {
    check_layout(options, m, world, m.context);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Layout, WhatCannotBeIsRefusedWithTheNearestThatCan) {
  const model::ModelOptions m = jumbo();
  EXPECT_EQ(refusal({8, true, 4, 1, {}, true}, m, 64), "");
  EXPECT_NE(refusal({8, true, 5, 1, {}, true}, m, 64).find("does not divide the 64 ranks"), std::string::npos);
  EXPECT_NE(refusal({8, true, 5, 1, {}, true}, m, 64).find("tensor = 8, pipeline = 4"), std::string::npos);
  EXPECT_NE(refusal({5, false, 1, 1, {}, true}, m, 10).find("model.heads = 96"), std::string::npos);
  EXPECT_NE(refusal({1, true, 1, 1, {}, true}, m, 1).find("parallel.tensor is 1"), std::string::npos);
  EXPECT_NE(refusal({1, false, 1, 2, {}, true}, m, 1).find("needs a pipeline"), std::string::npos);
  EXPECT_NE(refusal({1, false, 80, 1, {}, true}, m, 80).find("model.layers = 76"), std::string::npos);
  model::ModelOptions grouped = m;
  grouped.family = "llama";
  grouped.kv_heads = 2;
  EXPECT_NE(refusal({4, false, 1, 1, {}, true}, grouped, 4).find("model.kv_heads = 2"), std::string::npos);
  EXPECT_NE(refusal({1, false, 2, 1, {70, 5}, true}, m, 2).find("whose sum is model.layers = 76"),
            std::string::npos);
  EXPECT_EQ(refusal({1, false, 2, 1, {70, 6}, true}, m, 2), "");
}

TEST(Stages, OfJumboCountTheOutputLayer) {
  const model::ModelOptions m = jumbo();
  EXPECT_NEAR(head_in_layers(m), 1.56, 0.05);
  const auto spans = chunk_spans({8, true, 8, 1, {}, true}, m);
  std::vector<int64_t> layers;
  for (const model::Span& span : spans) layers.push_back(span.end - span.begin);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), 76);
  // No stage has more than ⌈(76 + 1.6) / 8⌉ = 10 layers' work, and the last makes room for its head.
  EXPECT_EQ(layers, (std::vector<int64_t>{9, 9, 10, 10, 10, 10, 10, 8}));
  EXPECT_TRUE(spans.front().embedding && spans.back().head);
  EXPECT_FALSE(spans.back().embedding || spans.front().head);
}

TEST(Stages, AnyNumberOfChunksHoldsEveryLayerOnce) {
  model::ModelOptions m = jumbo();
  for (m.layers = 1; m.layers < 20; ++m.layers)
    for (int64_t pipeline = 1; pipeline <= m.layers; ++pipeline) {
      const auto spans = chunk_spans({1, false, pipeline, 1, {}, true}, m);
      int64_t next = 0;
      for (const model::Span& span : spans) {
        EXPECT_EQ(span.begin, next);
        EXPECT_GT(span.end, span.begin);
        next = span.end;
      }
      EXPECT_EQ(next, m.layers);
    }
}

TEST(Placement, OfAllRanksTogetherIsTheWholeTable) {
  for (const char* family : {"jurassic", "llama"}) {
    model::ModelOptions m;
    m.family = family;
    m.layers = 5;
    m.hidden = 32;
    m.heads = 4;
    m.vocabulary = 37;
    m.context = 16;
    m.mlp_hidden = 64;
    m.resolve(0);
    const comm::Layout layout{4, 1, 2};
    int64_t counted = 0;
    for (int tensor = 0; tensor < 4; ++tensor)
      for (int stage = 0; stage < 2; ++stage) {
        const Placement p = place(m, {4, true, 2, 1, {}, true}, layout, {tensor, 0, stage});
        for (size_t i = 0; i < p.table.size(); ++i)
          if (p.held[i].counted) counted += p.table[i].size();
      }
    EXPECT_EQ(counted, model::parameter_count(model::parameter_table(m)));
  }
}

TEST(Shards, TileEveryBucketAndEveryParameterLiesInOne) {
  model::ModelOptions m;
  m.layers = 3;
  m.hidden = 24;
  m.heads = 3;
  m.vocabulary = 41;
  m.context = 16;
  m.resolve(0);
  const auto table = model::parameter_table(m);
  const model::ParameterMemory memory(table, model::Precision::fp32, at::kCPU, true);
  std::vector<Held> held(table.size());
  held[0].tied = true;
  for (const int64_t elements : {1, 1000, 1 << 20}) {
    const auto buckets = make_buckets(memory, held, elements);
    EXPECT_TRUE(buckets.front().tied);
    EXPECT_LT(buckets.front().end, memory.offset(1) + 1);
    int64_t next = 0;
    for (const Bucket& bucket : buckets) {
      EXPECT_EQ(bucket.begin, next);
      next = bucket.end;
    }
    EXPECT_EQ(next, memory.flat_size());
    for (const int ranks : {1, 2, 3, 7}) {
      std::vector<int> owners(static_cast<size_t>(memory.flat_size()));
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t state = 0;
        for (const Piece& piece : pieces_of(buckets, ranks, rank)) {
          EXPECT_EQ(piece.state, state);
          state += piece.size();
          for (int64_t i = piece.begin; i < piece.end; ++i) ++owners[static_cast<size_t>(i)];
        }
      }
      for (const int owner : owners) ASSERT_EQ(owner, 1);
    }
  }
}

}  // namespace
}  // namespace sauropod::parallel

// Under ZeRO-1 the new weights travel while the next forward pass goes on: what waits for what.
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/test_support.h"
#include "parallel/test_support.h"

namespace sauropod::parallel::test {
namespace {

TEST(Gathering, PassesWaitOnlyForTheLayersTheyHaveReached) {
  comm::test::run_ranks(2, [](comm::World& world) {
    Case c;
    c.parallel.zero = true;
    Trainee trainee(c, c.parallel, world, {});
    Optimizer& optimizer = trainee.optimizer();
    trainee.backward(0, 0);
    EXPECT_EQ(optimizer.gathering(), 0u);
    optimizer.update(kLearningRate, optimizer.gradient_norm());
    const size_t buckets = optimizer.gathering();
    ASSERT_GE(buckets, 4u);
    optimizer.need(-1);
    EXPECT_EQ(optimizer.gathering(), buckets - 1);  // the embeddings are in the first
    optimizer.need(0);
    const size_t after_first = optimizer.gathering();
    EXPECT_LT(after_first, buckets);
    EXPECT_GT(after_first, 0u);
    optimizer.need(0);  // of a second microbatch
    EXPECT_EQ(optimizer.gathering(), after_first);
    optimizer.need(tiny_model(c).layers);
    EXPECT_EQ(optimizer.gathering(), 0u);
  });
}

TEST(Gathering, APassThatDidNotWaitIsNoticed) {
  comm::test::run_ranks(2, [](comm::World& world) {
    Case c;
    c.parallel.zero = true;
    Trainee trainee(c, c.parallel, world, {});
    Optimizer& optimizer = trainee.optimizer();
    trainee.backward(0, 0);
    optimizer.update(kLearningRate, optimizer.gradient_norm());
    optimizer.need(2);
    EXPECT_THROW(optimizer.layer_done(tiny_model(c).layers - 1), std::exception);
    optimizer.wait_for_weights();
    EXPECT_EQ(optimizer.gathering(), 0u);
  });
}

// A rank without sequences has no forward pass that would wait.
TEST(Gathering, ARankWithoutSequencesWaitsBeforeItReduces) {
  comm::test::run_ranks(2, [](comm::World& world) {
    Case c;
    c.parallel.zero = true;
    c.batches = {1};
    c.steps = 4;
    const Distance d = distance(c, world);
    EXPECT_LT(d.weights, 1e-10) << d.where;
    EXPECT_LT(d.loss, 1e-10);
  });
}

}  // namespace
}  // namespace sauropod::parallel::test

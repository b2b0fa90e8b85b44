// Every schedule is run: dependencies are met, and messages arrive in the order in which they are received.
#include "parallel/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace sauropod::parallel {
namespace {

using Key = std::tuple<bool, int64_t, int64_t>;

// Runs all stages side by side until none can go on; returns the most forward passes that a stage held
// without their backward passes, by stage.
std::vector<int64_t> run(int64_t stages, int64_t chunks, int64_t microbatches) {
  std::vector<std::vector<Action>> order;
  for (int64_t s = 0; s < stages; ++s) order.push_back(schedule(stages, s, chunks, microbatches));
  std::set<Key> done;
  std::vector<size_t> at(static_cast<size_t>(stages));
  std::vector<int64_t> held(static_cast<size_t>(stages)), most(static_cast<size_t>(stages));
  const int64_t last = stages * chunks - 1;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < order.size(); ++s)
      while (at[s] < order[s].size()) {
        const Action& a = order[s][at[s]];
        EXPECT_EQ(a.chunk % stages, static_cast<int64_t>(s));
        const bool ready = a.forward ? a.chunk == 0 || done.contains({true, a.chunk - 1, a.microbatch})
                                     : done.contains({true, a.chunk, a.microbatch}) &&
                                           (a.chunk == last ||
                                            done.contains({false, a.chunk + 1, a.microbatch}));
        if (!ready) break;
        EXPECT_TRUE(done.insert({a.forward, a.chunk, a.microbatch}).second);
        held[s] += a.forward ? 1 : -1;
        most[s] = std::max(most[s], held[s]);
        ++at[s];
        progress = true;
      }
  }
  for (size_t s = 0; s < order.size(); ++s)
    EXPECT_EQ(at[s], order[s].size())
        << "stage " << s << " of " << stages << " with " << chunks << " chunks and " << microbatches
        << " microbatches is stuck";
  EXPECT_EQ(done.size(), static_cast<size_t>(2 * stages * chunks * microbatches));
  return most;
}

TEST(Schedule, CompletesWithAnyNumbers) {
  for (int64_t stages = 1; stages <= 6; ++stages)
    for (int64_t chunks = 1; chunks <= 4; ++chunks)
      for (int64_t microbatches = 1; microbatches <= 14; ++microbatches)
        run(stages, chunks, microbatches);
  run(8, 4, 512);
  run(16, 3, 64);
}

TEST(Schedule, OneChunkHoldsAsManyMicrobatchesAsThereAreStagesBehind) {
  for (const int64_t microbatches : {1, 3, 4, 9})
    for (int64_t stage = 0; stage < 4; ++stage)
      EXPECT_EQ(run(4, 1, microbatches)[static_cast<size_t>(stage)],
                std::min(microbatches, 4 - stage));
}

TEST(Schedule, InterleavingHoldsWhatNarayananEtAlSay) {
  // The first stage: v·p chunks of a microbatch, and (p − 1) more.
  EXPECT_EQ(run(4, 2, 16)[0], 2 * 3 + 4 + 1);
}

TEST(Schedule, MessagesAreThoseOfTheSenderInItsOrder) {
  const auto sent = messages(2, 1, 3, 0, 1);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0], (Action{true, 0, 0}));
  EXPECT_EQ(messages(2, 1, 3, 1, 0).size(), 3u);
  EXPECT_FALSE(messages(2, 1, 3, 1, 0)[0].forward);
  // Two chunks on two stages: both directions go both ways.
  const auto both = messages(2, 2, 2, 0, 1);
  EXPECT_EQ(both.size(), 6u);  // outputs of chunks 0 and 2, gradients of chunk 2's input
  int64_t all = 0;
  for (int64_t from = 0; from < 4; ++from)
    for (int64_t to = 0; to < 4; ++to)
      all += static_cast<int64_t>(messages(4, 3, 8, from, to).size());
  EXPECT_EQ(all, 2 * 11 * 8);  // every border between chunks, forward and back, every microbatch
}

}  // namespace
}  // namespace sauropod::parallel

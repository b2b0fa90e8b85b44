// The order in which a stage of the pipeline computes: 1F1B and interleaved 1F1B (Narayanan et al., 2021).
//
// Chunk c of the model lies on stage c mod stages. The order is a pure function of its arguments, so that
// every stage knows the order of every other one, and with it the order of the messages between them.
#pragma once

#include <cstdint>
#include <vector>

namespace sauropod::parallel {

struct Action {
  bool forward = true;
  int64_t chunk = 0;       // of the model
  int64_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

// All forward and backward passes of one stage: `chunks` of them a microbatch and stage. Microbatches are
// taken in rounds of `stages`; the last round may be shorter. Every order that this gives completes, with
// any numbers (schedule_test.cpp runs them).
std::vector<Action> schedule(int64_t stages, int64_t stage, int64_t chunks, int64_t microbatches);

// What one stage sends another, in order: the output of the forward pass of a chunk to the stage of the next
// chunk, and the gradient of its input to the stage of the one before.
std::vector<Action> messages(int64_t stages, int64_t chunks, int64_t microbatches, int64_t from,
                             int64_t to);

}  // namespace sauropod::parallel

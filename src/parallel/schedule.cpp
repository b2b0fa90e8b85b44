#include "parallel/schedule.h"

#include <algorithm>

namespace sauropod::parallel {
namespace {

// The passes of one direction: rounds of microbatches, in each of them chunk by chunk.
std::vector<Action> passes(int64_t stages, int64_t stage, int64_t chunks, int64_t microbatches,
                           bool forward) {
  std::vector<Action> result;
  for (int64_t first = 0; first < microbatches; first += stages)
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t chunk = (forward ? i : chunks - 1 - i) * stages + stage;
      for (int64_t m = first; m < std::min(first + stages, microbatches); ++m)
        result.push_back({forward, chunk, m});
    }
  return result;
}

}  // namespace

std::vector<Action> schedule(int64_t stages, int64_t stage, int64_t chunks, int64_t microbatches) {
  const std::vector<Action> forward = passes(stages, stage, chunks, microbatches, true);
  const std::vector<Action> backward = passes(stages, stage, chunks, microbatches, false);
  const auto total = static_cast<int64_t>(forward.size());
  // Forward passes before the first backward pass: one chunk as many as there are stages behind this one;
  // several twice as many, and all of a round's but the last chunk's.
  int64_t ahead = stages - stage - 1;
  if (chunks > 1) ahead = 2 * ahead + (chunks - 1) * stages;
  // A round cut short reaches its last chunk sooner in one direction than in the other.
  if (chunks > 1 && microbatches % stages != 0) ahead = total;
  ahead = std::min(ahead, total);

  std::vector<Action> result(forward.begin(), forward.begin() + ahead);
  for (int64_t i = ahead; i < total; ++i) {
    result.push_back(forward[static_cast<size_t>(i)]);
    result.push_back(backward[static_cast<size_t>(i - ahead)]);
  }
  for (int64_t i = total - ahead; i < total; ++i) result.push_back(backward[static_cast<size_t>(i)]);
  return result;
}

std::vector<Action> messages(int64_t stages, int64_t chunks, int64_t microbatches, int64_t from,
                             int64_t to) {
  std::vector<Action> result;
  const int64_t last = stages * chunks - 1;
  for (const Action& action : schedule(stages, from, chunks, microbatches)) {
    const int64_t next = action.chunk + (action.forward ? 1 : -1);
    if (next >= 0 && next <= last && next % stages == to) result.push_back(action);
  }
  return result;
}

}  // namespace sauropod::parallel

// Plain threads for work without tensors (ATen has its own OpenMP team: tensor code uses
// at::parallel_for).
#pragma once

#include <cstddef>
#include <functional>

namespace sauropod::base {

// The processors this process may run on (its affinity mask), at least 1.
int hardware_threads();

// Calls work(begin, end) over [0, size) in pieces of at most `grain`, on up to `threads` threads (the
// caller's included), and returns when all are done. Pieces are handed out in order, so which thread
// runs which piece is not fixed: results must not depend on it. The first exception thrown by a piece
// stops the handing out and is rethrown here.
void parallel_for(size_t size, size_t grain, int threads,
                  const std::function<void(size_t begin, size_t end)>& work);

}  // namespace sauropod::base

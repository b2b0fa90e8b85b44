// The collectives, made of transfers between pairs. Only for files of this room.
//
// reduce_scatter: every rank sends part i to rank i and adds up what it gets, in rank order: each byte crosses
// once, as in a ring, and the sum doesn't depend on who came first. It goes in chunks, so that scratch memory is
// bounded and adding overlaps receiving. all_reduce is that and an all_gather, so that all ranks hold the same
// bits; small ones gather everything and add it up everywhere, in one round instead of two.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/operation.h"
#include "comm/transport.h"

namespace sauropod::comm {

// Runs one collective to its end on the calling thread. `scratch` is kept between calls by the caller.
void run_collective(Transport& transport, int rank, int size, const Operation& operation,
                    std::vector<std::byte>& scratch);

}  // namespace sauropod::comm

// Who is to blame when ranks wait. The first error one sees is usually a victim's: here the waiting is followed
// to the rank that isn't waiting itself. Described in docs/communication.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/flight_recorder.h"

namespace sauropod::comm {

struct Verdict {
  std::optional<int> rank;  // of the world; none when nobody waits, or nobody in particular is to blame
  std::string sentence;     // one line: rank, host, what it did last, who waits for it and how long
};

// From the records of all ranks of a world, in any order. A rank that is left out has never started, if others wait
// for it.
//
// A rank waits when somebody is blocked in one of its calls: in a collective for the members that haven't made the
// call, or, when all have, for those that are dead, stopped or silent; in an exchange for the peers that haven't
// posted the other side. Blamed is a rank that others wait for and that doesn't wait: first one that failed by
// itself, then a dead one, one that never started, a stopped, a silent, and then a late one; among equals the one
// with the fewest calls.
Verdict judge(const std::vector<RankRecord>& records);

}  // namespace sauropod::comm

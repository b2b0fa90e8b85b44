// Why a launch failed: which rank is to blame, with what exit code, and how people are told. Described in
// docs/launch.md.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cluster/process.h"
#include "comm/flight_recorder.h"

namespace sauropod::cluster {

// What the launcher knows of one rank.
struct RankFate {
  std::string host = {};
  int process = 0;  // 0: not started
  std::optional<Ending> ending = {};
  int order = 0;           // in which the endings came
  bool host_lost = false;  // its agent doesn't answer any more
  std::string unkillable = {};  // its state, when it doesn't end
  bool over() const { return ending || host_lost || !unkillable.empty() || process == 0; }
  // Ended badly, and not because the launcher told it to.
  bool died() const { return ending && !ending->good() && !ending->by_launcher; }
};

struct Blame {
  std::optional<int> rank = {};  // none: nobody in particular
  std::string sentence = {};     // the flight recorder's verdict; empty: it has none
};

// `records`: of all ranks that have one; `before`: what was found just before the first one died, while ranks
// waited: those that have given up don't wait any more. Blamed is, in this order, a rank that the verdict
// names though it has not died (it failed by itself, is stopped, hangs), the first that died without having
// waited in vain for another, and the first that died.
Blame find_blame(const std::vector<RankFate>& ranks, const std::vector<comm::RankRecord>& records,
                 const Blame& before = {});

// The blamed rank's exit code; when it has none of its own (it was stopped), the first victim's. Never 0.
int exit_code(const std::vector<RankFate>& ranks, const Blame& blame);

// One line: "rank 2 (node-7, process 4711) was killed by SIGKILL".
std::string headline(const std::vector<RankFate>& ranks, const Blame& blame);
// Several lines: the headline, the last words, the verdict, how the others ended.
std::string report(const std::vector<RankFate>& ranks, const Blame& blame,
                   const std::deque<std::string>& last_words);

}  // namespace sauropod::cluster

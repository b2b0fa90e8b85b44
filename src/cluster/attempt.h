// One start of all ranks of a launch, until all have ended. Described in docs/launch.md.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/failure.h"
#include "cluster/hosts.h"
#include "cluster/launch.h"
#include "cluster/link.h"
#include "cluster/output.h"

namespace sauropod::cluster {

// What stays the same from attempt to attempt.
struct Plan {
  LaunchOptions options;
  std::vector<Host> hosts = {};
  std::vector<int> counts = {};  // ranks of each host
  bool local = true;        // this machine alone, by no other name
  std::string store = {};   // "host:port"; empty: one rank
};

struct Outcome {
  int code = 0;
  bool stopped = false;    // somebody asked for the end
  bool transient = false;  // another attempt may help
};

class Attempt {
 public:
  Attempt(const Plan& plan, int number, Output& output, Signals& signals);

  // Throws base::Error when the ranks can't be started.
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { connecting, running, gathering, ending, over };
  struct Member {
    std::unique_ptr<Link> link = {};
    int first = 0, count = 0;  // its ranks
    bool ready = false;        // it has greeted
    bool answered = false;     // the last question for records
    double waiting = 0;        // the longest wait of its ranks, as a part of the time-out
  };

  void connect();
  void start(Member& member);
  void wait();
  void take_signal(int signal);
  void take_message(Member& member, const Message& message);
  void take_ending(int rank, const nlohmann::json& fields);
  void take_beat(Member& member, const nlohmann::json& fields);
  void lose(Member& member);
  void tick(Clock::time_point now);
  void ask_for_records(Clock::time_point now);
  void take_records();
  void fail();
  void end_all(std::chrono::seconds grace);
  bool all_over() const;
  Outcome outcome();
  std::string rank_name(int rank) const;

  const Plan& plan_;
  const int number_;
  Output& output_;
  Signals& signals_;
  std::vector<Member> members_;
  std::vector<RankFate> ranks_;
  std::vector<comm::RankRecord> records_;

  Phase phase_ = Phase::connecting;
  Clock::time_point began_ = Clock::now();
  Clock::time_point next_beat_ = Clock::now();
  std::optional<Clock::time_point> failed_, asked_, ending_;
  int endings_ = 0;
  int stop_signal_ = 0;
  bool killed_ = false;       // by a second Ctrl-C
  bool warned_ = false;       // that ranks wait long
  Blame blame_;
  Blame waiting_blame_;       // found while ranks waited, at this time
  Clock::time_point looked_{};
  bool hung_ = false;
  std::optional<base::Error> error_;  // why ranks can't be started
};

}  // namespace sauropod::cluster

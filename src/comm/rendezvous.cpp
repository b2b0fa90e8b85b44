#include "comm/rendezvous.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "comm/gloo.h"

namespace sauropod::comm {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Equal for processes that can share memory: the same kernel, network (two namespaces on one machine are two hosts) and
// name of the host as the launcher gave it.
std::string identity_of(const LaunchEnvironment& environment) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network{};
  stat("/proc/self/ns/net", &network);
  return fmt::format("{} {} {}", environment.host, boot, network.st_ino);
}

std::string start_key(int rank) { return fmt::format("start/{}", rank); }

class Meeter {
 public:
  Meeter(Store& store, const LaunchEnvironment& environment, std::chrono::milliseconds timeout)
      : store_(store), environment_(environment), deadline_(Clock::now() + timeout), timeout_(timeout) {}

  Meeting meet(const Description& description, bool want_memory) {
    const int rank = environment_.rank, size = environment_.size;
    if (store_.add(fmt::format("start/claim/{}", rank), 1) > 1)
      base::fail_usage("two processes say that they are rank {} of the run whose store is at {}: end the run that is "
                       "still there, or give this one another port (MASTER_PORT)",
                       rank, store_.address());
    if (rank == 0) {
      store_.set("verdict", "");
      store_.set("start/description", json(description).dump(-1, ' ', false, json::error_handler_t::replace));
    }
    probe_ = SharedMemory::make(1);
    const json own = {{"host", environment_.host},
                      {"size", size},
                      {"identity", identity_of(environment_)},
                      {"process", getpid()},
                      {"probe", probe_->descriptor()},
                      {"address", address_towards(environment_.store_host, environment_.store_port)},
                      {"difference", difference(description)},
                      {"memory", want_memory}};
    store_.set(start_key(rank), own.dump(-1, ' ', false, json::error_handler_t::replace));
    if (store_.add("start/arrived", 1) == size) store_.set("start/all", all_ranks().dump());
    const json all = json::parse(get("start/all"));
    if (const std::string problem = all.at("problem").get<std::string>(); !problem.empty())
      base::fail_usage("{}", problem);
    return settle(all.at("ranks"));
  }

 private:
  std::chrono::milliseconds left() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }

  // Waits for what other ranks write; when it doesn't come, says which ranks haven't.
  std::string get(const std::string& key) {
    try {
      return store_.get(key, left());
    } catch (const CommunicationError& error) {
      std::string missing;
      int count = 0;
      try {
        for (int rank = 0; rank < environment_.size; ++rank)
          if (!store_.has(start_key(rank)) && ++count <= 8) missing += (count > 1 ? ", " : "") + std::to_string(rank);
      } catch (const CommunicationError&) {
        throw error;
      }
      if (count == 0) throw;
      throw CommunicationError(fmt::format(
          "{} of {} ranks did not start within {:.0f} s: rank{} {}{}. Their own messages tell why; "
          "communication.startup_timeout is how long to wait",
          count, environment_.size, std::chrono::duration<double>(timeout_).count(), count == 1 ? "" : "s", missing,
          count > 8 ? ", …" : ""));
    }
  }

  // "train.steps is 200 there and 100 on rank 0", or nothing.
  std::string difference(const Description& own) {
    const auto first = json::parse(get("start/description")).get<Description>();
    std::map<std::string, std::string> theirs(first.begin(), first.end()), ours(own.begin(), own.end());
    for (const auto& [key, value] : own)
      if (const auto at = theirs.find(key); at == theirs.end())
        return fmt::format("{} is {} there, and not set on rank 0", key, value);
      else if (at->second != value)
        return fmt::format("{} is {} there, and {} on rank 0", key, value, at->second);
    for (const auto& [key, value] : first)
      if (!ours.contains(key)) return fmt::format("{} is not set there, and {} on rank 0", key, value);
    return "";
  }

  // What the last rank to arrive finds: {"ranks": …, "problem": text}.
  json all_ranks() {
    std::vector<std::string> keys;
    for (int rank = 0; rank < environment_.size; ++rank) keys.push_back(start_key(rank));
    json ranks = json::array();
    std::string problem;
    int differing = 0;
    for (const std::string& text : store_.get_all(keys)) {
      ranks.push_back(json::parse(text));
      const json& one = ranks.back();
      const auto rank = ranks.size() - 1;
      std::string difference = one.at("difference").get<std::string>();
      if (one.at("size") != environment_.size)
        difference = fmt::format("it was told of {} ranks, and rank {} of {}", one.at("size").dump(), environment_.rank,
                                 environment_.size);
      if (!difference.empty() && ++differing <= 4)
        problem += fmt::format("\n  rank {} ({}): {}", rank, one.at("host").get<std::string>(), difference);
    }
    if (differing > 0)
      problem = fmt::format("{} of {} ranks {} started differently from rank 0; all need the same program and recipe:{}{}",
                            differing, environment_.size, differing == 1 ? "was" : "were", problem,
                            differing > 4 ? "\n  …" : "");
    return {{"ranks", ranks}, {"problem", problem}};
  }

  Meeting settle(const json& ranks) {
    Meeting meeting;
    std::map<std::string, int> nodes;
    std::vector<int> members, first;  // by node
    bool want_memory = true;
    for (const json& one : ranks) {
      const auto [at, fresh] = nodes.try_emplace(one.at("identity").get<std::string>(), static_cast<int>(nodes.size()));
      if (fresh) members.push_back(0), first.push_back(static_cast<int>(meeting.places.size()));
      if (static_cast<int>(meeting.places.size()) == environment_.rank) meeting.local_rank = members[at->second];
      ++members[at->second];
      meeting.places.push_back({.host = one.at("host").get<std::string>(), .node = at->second});
      want_memory &= one.at("memory").get<bool>();
    }
    const int node = meeting.places[environment_.rank].node;
    meeting.local_size = members[node];
    meeting.processes.resize(ranks.size());
    bool reached = true;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (meeting.places[rank].node == node) {
        auto watch = ProcessWatch::open(ranks[rank].at("process").get<pid_t>());
        reached &= watch.has_value();
        if (watch) meeting.processes[rank] = std::make_shared<ProcessWatch>(std::move(*watch));
      }
    if (environment_.rank != first[node])
      reached &= SharedMemory::open(ranks[first[node]].at("process").get<pid_t>(), ranks[first[node]].at("probe").get<int>(),
                                    1) != nullptr;
    meeting.address = ranks[environment_.rank].at("address").get<std::string>();
    if (nodes.size() > 1) meeting.address = outside_address(ranks, meeting);
    meeting.shares_memory = agree(want_memory && reached && members[node] > 1, node, members.size());
    return meeting;
  }

  // Every rank says whether it reached its neighbours' memory; a node shares it when all of its ranks did.
  std::vector<bool> agree(bool reached, int node, size_t nodes) {
    if (!reached) store_.set(fmt::format("start/unshared/{}", node), "1");
    if (store_.add("start/probed", 1) == environment_.size) {
      json shared = json::array();
      for (size_t i = 0; i < nodes; ++i) shared.push_back(!store_.has(fmt::format("start/unshared/{}", i)));
      store_.set("start/go", shared.dump());
    }
    return json::parse(get("start/go")).get<std::vector<bool>>();
  }

  // Rank 0's host may know itself by a loopback address only, where others can't reach it: ask for the way to one of
  // them instead.
  std::string outside_address(const json& ranks, const Meeting& meeting) const {
    const auto loopback = [](const std::string& address) {
      return address.empty() || address.starts_with("127.") || address == "::1";
    };
    if (!loopback(meeting.address)) return meeting.address;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string other = ranks[rank].at("address").get<std::string>();
      if (meeting.places[rank].node == meeting.places[environment_.rank].node || loopback(other)) continue;
      if (const std::string found = address_towards(other, 1); !loopback(found)) return found;
    }
    return meeting.address.empty() ? "127.0.0.1" : meeting.address;
  }

  Store& store_;
  const LaunchEnvironment& environment_;
  Clock::time_point deadline_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<SharedMemory> probe_;
};

}  // namespace

Meeting meet(Store& store, const LaunchEnvironment& environment, const Description& description, bool want_memory,
             std::chrono::milliseconds timeout) {
  return Meeter(store, environment, timeout).meet(description, want_memory);
}

}  // namespace sauropod::comm

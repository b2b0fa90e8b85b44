// The hosts of a launch, and how many ranks each gets. Described in docs/launch.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::cluster {

struct Host {
  std::string name;  // as ssh takes it: "node-1", "ann@10.0.0.2", "fe80::1"
  int slots = 0;     // ranks it takes at most; 0: as many as come
};

// "a,b" or "a:8,b:8"; an IPv6 address with slots is "[fe80::1]:8". Throws base::Error (usage).
std::vector<Host> parse_hosts(std::string_view text);
// A host a line: "a", "a:8", or OpenMPI's "a slots=8"; # begins a comment. Throws base::Error.
std::vector<Host> read_host_file(const std::filesystem::path& path);

// How many of `ranks` (0: all slots) each host gets. Neighbouring ranks share a host: those with slots are
// filled one after the other, those without share evenly. A host may get none. Throws base::Error (usage).
std::vector<int> place_ranks(const std::vector<Host>& hosts, int ranks);

}  // namespace sauropod::cluster

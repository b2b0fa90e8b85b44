// Which rank this process is, as the environment tells it. In this order: our own launcher's variables,
// torchrun's, Slurm's, OpenMPI's; nothing set is one rank. Described in docs/communication.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::comm {

struct LaunchEnvironment {
  std::string source = "none";  // "sauropod launch", "torchrun", "Slurm", "OpenMPI", "none"
  int rank = 0;
  int size = 1;
  int local_rank = 0;               // among the ranks of this host; -1: unknown, found out when ranks meet
  int local_size = 1;               // likewise
  std::string host = {};            // this host's name
  std::string store_host = {};      // where the store listens
  int store_port = 0;
  bool store_hosted = false;        // by the launcher; otherwise rank 0 makes it
  int attempt = 0;                  // how often the ranks were started before, with the same store
  std::string recorder_path = {};   // of this rank's flight recorder; empty: none
};

// The value of a declared variable, or nothing (config/environment.h).
using Variables = std::function<std::optional<std::string>(std::string_view name)>;

// Throws base::Error (usage) that names the variables which are missing or contradict each other.
LaunchEnvironment read_launch_environment();
LaunchEnvironment read_launch_environment(const Variables& variables);

// The hosts of a Slurm list such as "n[1-3,7],login,rack[01-02]n[5,6]", in order. Throws base::Error
// when it can't be read.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

}  // namespace sauropod::comm

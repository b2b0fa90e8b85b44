// `sauropod launch`: starts the ranks of a run on one machine or several, watches over them, and starts them
// again when that may help. Described in docs/launch.md.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace sauropod::cluster {

struct LaunchOptions {
  int ranks = 0;                // 0: as many as the hosts have slots
  std::string hosts;            // as in cluster/hosts.h; empty: this machine
  std::string host_file;
  std::string ssh;              // words to use in its place; empty: ssh
  std::string remote_binary;    // path of this program on the other hosts; empty: the same as here
  std::string address;          // of this machine, as the others reach it; empty: found out
  std::vector<std::string> environment;  // NAME or NAME=VALUE, for the ranks
  std::string program;          // to start in place of this one
  std::vector<std::string> command;      // the ranks' arguments
  std::string log_folder;
  bool pin = false;
  std::chrono::seconds grace{10};
  int max_restarts = 0;
};

// Returns the exit code: 0 when all ranks ended with 0, or else that of the rank to blame. Throws base::Error
// when they can't be started. While it runs it takes SIGINT, SIGTERM and SIGHUP.
int launch(const LaunchOptions& options);

}  // namespace sauropod::cluster

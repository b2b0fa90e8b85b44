// `sauropod launch-agent`: the process on each host that starts the launcher's ranks there, passes on what
// they print, and ends them when it is told to or when the launcher is gone. Messages come on standard input
// and go to standard output. Described in docs/launch.md.
#pragma once

namespace sauropod::cluster {

// Returns the exit code. The process must have one thread.
int run_agent();

}  // namespace sauropod::cluster

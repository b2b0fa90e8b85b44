// When a run ends before its last step: a signal, the time, a file.
#pragma once

#include <chrono>
#include <string>

namespace sauropod::train {

// While it lives, SIGTERM and SIGINT ask for the end of the step and a checkpoint instead of ending the
// process; a second SIGINT ends it at once. One at a time in a process.
class StopRequest {
 public:
  StopRequest(std::chrono::seconds max_time, std::string stop_file);
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Why the run should end now ("SIGTERM", "train.max_time", …); empty: it should not.
  std::string reason() const;

 private:
  std::chrono::seconds max_time_;
  std::string stop_file_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace sauropod::train

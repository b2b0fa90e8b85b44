// The flight recorders of one host's ranks, as the process that started them sees them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cluster/process.h"
#include "comm/flight_recorder.h"

namespace sauropod::cluster {

// A call that somebody waits in, beside the time-out of its group.
struct Waiting {
  double seconds = 0;
  double timeout = 0;
  double fraction() const { return timeout > 0 ? seconds / timeout : 0; }
};

class RankRecords {
 public:
  // Makes a folder that only this user can read, in memory where the system has such a place: a disk that is
  // busy would hold up the ranks that write there. Throws base::Error.
  RankRecords();
  ~RankRecords();  // removes it
  RankRecords(const RankRecords&) = delete;
  RankRecords& operator=(const RankRecords&) = delete;

  std::string path(int rank) const;
  // Nothing when the rank has not met the others yet.
  std::optional<comm::RankRecord> read(int rank);

 private:
  std::filesystem::path folder_;
  Descriptor lock_;  // while it is held, others know that the folder is in use
  std::map<int, std::unique_ptr<comm::FlightReader>> readers_;
};

// The call nearest to its time-out among those that a running rank waits in.
Waiting longest_wait(const comm::RankRecord& record);

// Leaves of each group the calls that a verdict needs: those that are not finished and the last ones.
void shorten(comm::RankRecord& record);

}  // namespace sauropod::cluster

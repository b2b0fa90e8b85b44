// What ranks tell each other through the store while they run: once a second a rank writes its record (its last calls),
// so that on a time-out any of them can find out who is to blame, and reads the verdict, so that a failure that one
// rank found is known to all within a second. Only for files of this room.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/store.h"

namespace sauropod::comm {

// Thread-safe. Has a thread, and a connection to the store of its own. A store that doesn't answer is noted, not thrown.
class Bulletin {
 public:
  Bulletin(std::unique_ptr<Store> store, std::shared_ptr<FlightRecorder> recorder, int rank, int size);
  ~Bulletin();  // writes the last record

  // The verdict that some rank settled on; empty: none.
  std::string verdict() const;
  // Reads all ranks' records in the background, so that gather() knows later who gave no sign of life since.
  void sample();
  // All ranks' records now; nothing when the store doesn't answer, which takes up to 10 seconds. With `silent`, tells
  // which ranks give no sign of life; takes up to two seconds more when there was no sample in time.
  std::optional<std::vector<RankRecord>> gather(bool silent);
  // Puts the verdict before all ranks, unless there is one already. Returns the one that holds.
  std::string settle(const std::string& verdict);
  // Writes the record at once.
  void publish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sauropod::comm

// The flight recorder: each rank keeps its last 256 calls of each group in a mapped file, which others can read
// while the rank runs, is stopped or is dead. The format is in docs/flight-recorder.md; who is to blame for a hang is
// judged in comm/verdict.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace sauropod::comm {

// ---- what a record says --------------------------------------------------------------------------------------

struct RecordedTransfer {
  int peer;         // in the group
  bool receive;
  uint64_t number;  // of this peer and direction, from 1
};

// Times in nanoseconds since 1970 by the rank's clock; 0: not yet.
struct RecordedCall {
  uint64_t order = 0;   // of this rank in this group, from 1
  uint64_t number = 0;  // collectives: the same on all ranks; exchanges: of this rank alone
  Kind kind = Kind::barrier;
  std::string label = {};
  int64_t bytes = 0;
  int64_t issued = 0, started = 0, blocked = 0, finished = 0;  // blocked: somebody began to wait for it
  std::vector<RecordedTransfer> transfers = {};                // of an exchange, at most 4
};

struct RecordedGroup {
  std::string name = {};
  std::vector<int> members = {};  // ranks of the world
  int self = 0;                 // this rank's place among them
  uint64_t collectives = 0;     // issued so far
  uint64_t exchanges = 0;
  std::chrono::milliseconds timeout{0};
  std::map<int, uint64_t> sent = {}, received = {};  // transfers posted so far, by peer
  std::vector<RecordedCall> calls = {};    // in order; what is left of them
};

enum class Status {
  running,
  left,     // it dropped its World in good order
  failed,   // by an error of its own
  gave_up,  // waiting for others: a victim
};

struct RankRecord {
  int rank = 0;
  int size = 0;
  std::string host = {};
  int process = 0;
  Status status = Status::running;
  std::string failure = {};  // its own words, when it failed or gave up
  int64_t time = 0;     // when this was written down; for a file: its last beat
  std::vector<RecordedGroup> groups = {};

  // What others know of it.
  bool present = true;        // false: it never started
  bool dead = false;          // its process has ended
  std::string end = {};       // how, if that is known: "killed by signal 9"
  bool stopped = false;       // its process is suspended
  double silent_seconds = 0;  // without a sign of life, if more than a few
};

// ---- writing ---------------------------------------------------------------------------------------------------

namespace flight {
struct File;
struct Group;
struct Call;
}  // namespace flight

// Thread-safe. Calls cost well under a microsecond.
class FlightRecorder : public std::enable_shared_from_this<FlightRecorder> {
 public:
  // A file at `path` (replaced), or memory of this process alone when it is empty. Throws base::Error.
  static std::shared_ptr<FlightRecorder> make(const std::filesystem::path& path, int rank, int size,
                                              const std::string& host);
  ~FlightRecorder();

  // One call's entry, or none. May outlive its entry's place in the file.
  class Entry {
   public:
    void started() const;
    void blocked() const;
    void finished() const;

   private:
    friend class FlightRecorder;
    std::shared_ptr<FlightRecorder> recorder_;
    flight::Call* call_ = nullptr;
    uint64_t order_ = 0;
  };

  // Groups are numbered; at most 64 exist at a time (base::Error).
  int open_group(const std::string& name, const std::vector<int>& members, int self,
                 std::chrono::milliseconds timeout);
  void close_group(int group);
  Entry issue(int group, const Operation& operation);
  void beat();
  void set_status(Status status, std::string_view failure = {});
  // The record as it is now; `brief`: of each group only the unfinished calls, the last one,
  // and the last that is finished.
  RankRecord snapshot(bool brief) const;

 private:
  FlightRecorder() = default;
  flight::File* file_ = nullptr;
};

// ---- reading ---------------------------------------------------------------------------------------------------

// Reads a file that another process may be writing: an entry that is being written at that moment is left out.
// Throws base::Error when it isn't a flight recorder's file.
class FlightReader {
 public:
  explicit FlightReader(const std::filesystem::path& path);
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  RankRecord read() const;

 private:
  const flight::File* file_ = nullptr;
};

// For the store: JSON of one line, and back. Throws base::Error when the text isn't such JSON.
std::string to_json(const RankRecord& record);
RankRecord record_from_json(const std::string& text);

int64_t unix_nanoseconds();

}  // namespace sauropod::comm

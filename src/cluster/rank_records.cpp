#include "cluster/rank_records.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "telemetry/log.h"

namespace sauropod::cluster {
namespace {

constexpr size_t kLastCalls = 4;
constexpr std::string_view kPrefix = "sauropod-flight-";

std::filesystem::path memory_or_disk() {
  const char* memory = "/dev/shm";
  struct statvfs room{};
  constexpr uint64_t enough = 64 << 20;
  if (access(memory, W_OK | X_OK) == 0 && statvfs(memory, &room) == 0 &&
      static_cast<uint64_t>(room.f_bavail) * room.f_frsize >= enough)
    return memory;
  return std::filesystem::temp_directory_path();
}

// Nothing when another process has it.
Descriptor lock(const std::filesystem::path& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor && flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0) descriptor.close();
  return descriptor;
}

// An agent that was killed could not remove its folder, and has lost its lock on it.
void remove_abandoned(const std::filesystem::path& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    std::error_code ignored;  // another user's, or another agent is removing it
    if (lock(entry->path())) std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace

RankRecords::RankRecords() {
  const std::filesystem::path parent = memory_or_disk();
  remove_abandoned(parent);
  while (!lock_) {
    std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).string();
    if (!mkdtemp(name.data())) base::fail_errno("make the folder of the flight recorders", name, errno);
    folder_ = name;
    lock_ = lock(folder_);
    std::error_code error;
    if (!std::filesystem::exists(folder_, error)) lock_.close();  // it was taken for an abandoned one
  }
}

RankRecords::~RankRecords() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::string RankRecords::path(int rank) const {
  return (folder_ / fmt::format("{}.flight", rank)).string();
}

std::optional<comm::RankRecord> RankRecords::read(int rank) {
  auto& reader = readers_[rank];
  if (!reader) {
    if (!std::filesystem::exists(path(rank))) return std::nullopt;
    try {
      reader = std::make_unique<comm::FlightReader>(path(rank));
    } catch (const base::Error& error) {  // it is just being made
      log::debug("{}", error.what());
      return std::nullopt;
    }
  }
  return reader->read();
}

Waiting longest_wait(const comm::RankRecord& record) {
  Waiting longest;
  if (record.status != comm::Status::running) return longest;
  const int64_t now = comm::unix_nanoseconds();
  for (const comm::RecordedGroup& group : record.groups)
    for (const comm::RecordedCall& call : group.calls) {
      if (!call.blocked || call.finished) continue;
      const Waiting waiting{.seconds = static_cast<double>(std::max<int64_t>(now - call.blocked, 0)) * 1e-9,
                            .timeout = std::chrono::duration<double>(group.timeout).count()};
      if (waiting.fraction() > longest.fraction()) longest = waiting;
    }
  return longest;
}

void shorten(comm::RankRecord& record) {
  for (comm::RecordedGroup& group : record.groups) {
    const size_t count = group.calls.size();
    size_t place = 0;
    std::erase_if(group.calls, [&](const comm::RecordedCall& call) {
      return place++ + kLastCalls < count && call.finished != 0;
    });
  }
}

}  // namespace sauropod::cluster

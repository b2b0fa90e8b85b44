#include "comm/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "comm/flight_format.h"
#include "comm/operation.h"

namespace sauropod::comm {
namespace {

// Cuts text to what fits, with its zero.
template <size_t N>
void put(char (&field)[N], std::string_view text) {
  const size_t n = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), n);
  std::memset(field + n, 0, N - n);
}

template <size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

RecordedCall read_call(const flight::Call& call) {
  RecordedCall read{.number = call.number,
                    .kind = static_cast<Kind>(call.kind),
                    .label = text_of(call.label),
                    .bytes = static_cast<int64_t>(call.bytes),
                    .issued = static_cast<int64_t>(call.issued.load()),
                    .started = static_cast<int64_t>(call.started.load()),
                    .blocked = static_cast<int64_t>(call.blocked.load()),
                    .finished = static_cast<int64_t>(call.finished.load()),
                    .transfers = {}};
  for (uint32_t i = 0; i < std::min<uint32_t>(call.transfer_count, flight::kTransfers); ++i)
    read.transfers.push_back({.peer = call.transfers[i].peer,
                              .receive = call.transfers[i].receive != 0,
                              .number = call.transfers[i].number});
  return read;
}

RecordedGroup read_group(const flight::Group& group, bool brief) {
  RecordedGroup read{.name = text_of(group.name),
                     .members = {},
                     .self = static_cast<int>(group.self),
                     .collectives = group.collectives.load(),
                     .exchanges = group.exchanges.load(),
                     .timeout = std::chrono::milliseconds(group.timeout),
                     .sent = {},
                     .received = {},
                     .calls = {}};
  const int size = static_cast<int>(std::min<size_t>(group.size, flight::kMembers));
  for (int i = 0; i < size; ++i) {
    read.members.push_back(static_cast<int>(group.members[i]));
    if (const uint32_t n = group.sent[i].load()) read.sent[i] = n;
    if (const uint32_t n = group.received[i].load()) read.received[i] = n;
  }
  const uint64_t issued = group.issued.load();
  bool finished_one = false;
  for (uint64_t order = issued; order > 0 && order + flight::kCalls > issued; --order) {  // the newest first
    const flight::Call& call = group.calls[order % flight::kCalls];
    if (call.order.load(std::memory_order_acquire) != order) continue;
    const bool finished = call.finished.load() != 0;
    if (brief && finished && std::exchange(finished_one, true)) continue;
    RecordedCall copy = read_call(call);
    if (call.order.load(std::memory_order_acquire) != order) continue;  // overwritten meanwhile
    copy.order = order;
    read.calls.push_back(std::move(copy));
  }
  std::reverse(read.calls.begin(), read.calls.end());
  return read;
}

RankRecord read_file(const flight::File& file, bool brief) {
  const flight::Header& header = file.header;
  RankRecord record{.rank = static_cast<int>(header.rank),
                    .size = static_cast<int>(header.size),
                    .host = text_of(header.host),
                    .process = static_cast<int>(header.process),
                    .status = static_cast<Status>(std::min<uint32_t>(header.status.load(), 3)),
                    .time = static_cast<int64_t>(header.beat.load())};
  if (record.status == Status::failed || record.status == Status::gave_up) record.failure = text_of(header.failure);
  for (const flight::Group& group : file.groups)
    if (group.used.load(std::memory_order_acquire)) record.groups.push_back(read_group(group, brief));
  return record;
}

std::mutex& slots_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

int64_t unix_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::shared_ptr<FlightRecorder> FlightRecorder::make(const std::filesystem::path& path, int rank, int size,
                                                     const std::string& host) {
  std::shared_ptr<FlightRecorder> recorder(new FlightRecorder);
  void* memory;
  if (path.empty()) {
    memory = mmap(nullptr, sizeof(flight::File), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    // A new file under that name: a reader of an earlier one keeps what it has.
    unlink(path.c_str());
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) base::fail_errno("make the flight recorder's file", path.string(), errno);
    const bool sized = ftruncate(fd, sizeof(flight::File)) == 0;
    const int error = errno;
    memory = sized ? mmap(nullptr, sizeof(flight::File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (!sized) base::fail_errno("make the flight recorder's file", path.string(), error);
  }
  if (memory == MAP_FAILED) base::fail("the flight recorder can't be mapped: {}", std::strerror(errno));
  recorder->file_ = static_cast<flight::File*>(memory);
  flight::Header& header = recorder->file_->header;
  header.rank = static_cast<uint32_t>(rank);
  header.size = static_cast<uint32_t>(size);
  header.process = static_cast<uint32_t>(getpid());
  header.started = static_cast<uint64_t>(unix_nanoseconds());
  put(header.host, host);
  recorder->beat();
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header.magic, flight::kMagic, sizeof(header.magic));
  return recorder;
}

FlightRecorder::~FlightRecorder() {
  if (file_) munmap(file_, sizeof(flight::File));
}

int FlightRecorder::open_group(const std::string& name, const std::vector<int>& members, int self,
                               std::chrono::milliseconds timeout) {
  if (members.size() > flight::kMembers) base::fail("a group of more than {} ranks", flight::kMembers);
  std::lock_guard lock(slots_mutex());
  for (size_t slot = 0; slot < flight::kGroups; ++slot) {
    flight::Group& group = file_->groups[slot];
    if (group.used.load()) continue;
    put(group.name, name);
    group.size = static_cast<uint32_t>(members.size());
    group.self = static_cast<uint32_t>(self);
    group.timeout = static_cast<uint32_t>(std::min<int64_t>(timeout.count(), UINT32_MAX));
    group.collectives = group.exchanges = group.issued = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      group.members[i] = static_cast<uint32_t>(members[i]);
      group.sent[i] = group.received[i] = 0;
    }
    for (flight::Call& call : group.calls) call.order.store(0);
    group.used.store(1, std::memory_order_release);
    return static_cast<int>(slot);
  }
  base::fail("more than {} groups of ranks at a time", flight::kGroups);
}

void FlightRecorder::close_group(int group) { file_->groups[group].used.store(0); }

FlightRecorder::Entry FlightRecorder::issue(int slot, const Operation& operation) {
  flight::Group& group = file_->groups[slot];
  const uint64_t order = group.issued.load() + 1;
  flight::Call& call = group.calls[order % flight::kCalls];
  call.order.store(0, std::memory_order_release);
  call.number = operation.number;
  call.kind = static_cast<uint8_t>(operation.kind);
  call.bytes = static_cast<uint64_t>(operation.bytes);
  put(call.label, operation.label);
  call.started = call.blocked = call.finished = 0;
  call.issued = static_cast<uint64_t>(unix_nanoseconds());
  call.transfer_count = 0;
  const auto note = [&](int peer, bool receive) {
    const uint32_t number = (receive ? group.received[peer] : group.sent[peer]).fetch_add(1) + 1;
    if (call.transfer_count < flight::kTransfers)
      call.transfers[call.transfer_count++] = {.peer = static_cast<uint16_t>(peer),
                                               .receive = static_cast<uint16_t>(receive),
                                               .number = number};
  };
  for (const auto& transfer : operation.receives) note(transfer.peer, true);
  for (const auto& transfer : operation.sends) note(transfer.peer, false);
  call.order.store(order, std::memory_order_release);
  (operation.kind == Kind::exchange ? group.exchanges : group.collectives).store(operation.number);
  group.issued.store(order, std::memory_order_release);

  Entry entry;
  entry.recorder_ = shared_from_this();
  entry.call_ = &call;
  entry.order_ = order;
  return entry;
}

namespace {

void stamp(flight::Call* call, uint64_t order, flight::U64 flight::Call::*field) {
  if (call && call->order.load() == order) (call->*field).store(static_cast<uint64_t>(unix_nanoseconds()));
}

}  // namespace

void FlightRecorder::Entry::started() const { stamp(call_, order_, &flight::Call::started); }
void FlightRecorder::Entry::blocked() const { stamp(call_, order_, &flight::Call::blocked); }
void FlightRecorder::Entry::finished() const { stamp(call_, order_, &flight::Call::finished); }

void FlightRecorder::beat() { file_->header.beat.store(static_cast<uint64_t>(unix_nanoseconds())); }

void FlightRecorder::set_status(Status status, std::string_view failure) {
  std::lock_guard lock(slots_mutex());
  put(file_->header.failure, failure);
  file_->header.status.store(static_cast<uint32_t>(status), std::memory_order_release);
}

RankRecord FlightRecorder::snapshot(bool brief) const {
  RankRecord record = read_file(*file_, brief);
  record.time = unix_nanoseconds();
  return record;
}

FlightReader::FlightReader(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) base::fail_errno("read the flight recorder's file", path.string(), errno);
  struct stat status{};
  const bool whole = fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(flight::File));
  void* memory = whole ? mmap(nullptr, sizeof(flight::File), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) base::fail("{}: not a flight recorder's file of this version", path.string());
  file_ = static_cast<const flight::File*>(memory);
  if (std::memcmp(file_->header.magic, flight::kMagic, sizeof(flight::kMagic)) != 0) {
    munmap(memory, sizeof(flight::File));
    base::fail("{}: not a flight recorder's file of this version", path.string());
  }
}

FlightReader::~FlightReader() { munmap(const_cast<flight::File*>(file_), sizeof(flight::File)); }

RankRecord FlightReader::read() const { return read_file(*file_, false); }

}  // namespace sauropod::comm

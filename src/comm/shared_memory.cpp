#include "comm/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/error.h"

namespace sauropod::comm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kRings = 8 << 20;           // bytes of all rings into one rank, of one lane
constexpr size_t kLargest = 1 << 20;         // a ring's
constexpr size_t kSmallest = 64 << 10;
constexpr size_t kPiece = 128 << 10;         // copied before the peer is told
constexpr long kSleep = 100 * 1000 * 1000;   // nanoseconds

size_t ring_bytes_for(int size) {
  return std::bit_floor(std::clamp(kRings / static_cast<size_t>(std::max(size - 1, 1)), kSmallest, kLargest));
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

struct alignas(kLine) SharedMemory::Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleeping;
};

// The writer owns `written`, the reader `read`: both only grow, and their difference is what lies between.
struct SharedMemory::Ring {
  alignas(kLine) std::atomic<uint64_t> written;
  alignas(kLine) std::atomic<uint64_t> read;
  alignas(kLine) std::byte data[1];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Layout: [gone: a line per rank][bells: lane, rank][rings: lane, from, to], the rings from a page on. The file
// is new and therefore zero, which is what everything starts with.
SharedMemory::SharedMemory(int descriptor, int size)
    : descriptor_(descriptor), size_(size), ring_bytes_(ring_bytes_for(size)) {
  const size_t ranks = static_cast<size_t>(size);
  ring_stride_ = round_up(2 * kLine + ring_bytes_, kPage);
  const size_t head = round_up(ranks * kLine + kLanes * ranks * sizeof(Bell), kPage);
  bytes_ = head + kLanes * ranks * ranks * ring_stride_;
}

std::shared_ptr<SharedMemory> SharedMemory::make(int size) {
  const int descriptor = memfd_create("sauropod", MFD_CLOEXEC);
  if (descriptor < 0) base::fail("no shared memory: {}", std::strerror(errno));
  std::shared_ptr<SharedMemory> memory(new SharedMemory(descriptor, size));
  if (ftruncate(descriptor, static_cast<off_t>(memory->bytes_)) != 0)
    base::fail("no {} bytes of shared memory: {}", memory->bytes_, std::strerror(errno));
  void* base = mmap(nullptr, memory->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) base::fail("shared memory can't be mapped: {}", std::strerror(errno));
  memory->base_ = static_cast<std::byte*>(base);
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::open(pid_t process, int descriptor, int size) {
  const int own = ::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return nullptr;
  std::shared_ptr<SharedMemory> memory(new SharedMemory(own, size));
  const off_t bytes = lseek(own, 0, SEEK_END);
  void* base = bytes == static_cast<off_t>(memory->bytes_)
                   ? mmap(nullptr, memory->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0)
                   : MAP_FAILED;
  memory->close_descriptor();
  if (base == MAP_FAILED) return nullptr;
  memory->base_ = static_cast<std::byte*>(base);
  return memory;
}

SharedMemory::~SharedMemory() {
  close_descriptor();
  if (base_) munmap(base_, bytes_);
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

std::atomic<uint32_t>& SharedMemory::gone(int rank) const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(base_ + rank * kLine);
}

SharedMemory::Bell& SharedMemory::bell(int lane, int rank) const {
  return reinterpret_cast<Bell*>(base_ + size_ * kLine)[lane * size_ + rank];
}

SharedMemory::Ring& SharedMemory::ring(int lane, int from, int to) const {
  const size_t head = bytes_ - kLanes * static_cast<size_t>(size_) * size_ * ring_stride_;
  const size_t place = (static_cast<size_t>(lane) * size_ + from) * size_ + to;
  return *reinterpret_cast<Ring*>(base_ + head + place * ring_stride_);
}

namespace {

void wake_one(std::atomic<uint32_t>& rings) {
  rings.fetch_add(1);
  syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void SharedMemory::leave(int rank) {
  gone(rank).store(1);
  ring_bells();
}

bool SharedMemory::left(int rank) const { return gone(rank).load() != 0; }

void SharedMemory::ring_bells() {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int rank = 0; rank < size_; ++rank) wake_one(bell(lane, rank).rings);
}

SharedTransport::SharedTransport(std::shared_ptr<SharedMemory> memory, int lane, int rank,
                                 std::function<bool(int)> dead)
    : memory_(std::move(memory)),
      lane_(lane),
      rank_(rank),
      dead_(std::move(dead)),
      sends_(static_cast<size_t>(memory_->size_)),
      receives_(static_cast<size_t>(memory_->size_)) {}

Transport::Ticket SharedTransport::post(int peer, bool receive, std::byte* data, size_t bytes) {
  if (bytes == 0) return {};
  Queue& queue = receive ? receives_[peer] : sends_[peer];
  queue.jobs.push_back({data, bytes});
  return {.peer = peer, .receive = receive, .number = ++queue.posted};
}

Transport::Ticket SharedTransport::send(int peer, const void* data, size_t bytes) {
  return post(peer, false, static_cast<std::byte*>(const_cast<void*>(data)), bytes);
}

Transport::Ticket SharedTransport::receive(int peer, void* data, size_t bytes) {
  return post(peer, true, static_cast<std::byte*>(data), bytes);
}

bool SharedTransport::done(const Ticket& ticket) const {
  const Queue& queue = ticket.receive ? receives_[ticket.peer] : sends_[ticket.peer];
  return queue.done >= ticket.number;
}

bool SharedTransport::push(int peer) {
  Queue& queue = sends_[peer];
  if (queue.jobs.empty()) return false;
  SharedMemory::Ring& ring = memory_->ring(lane_, rank_, peer);
  const size_t size = memory_->ring_bytes_;
  const uint64_t at = ring.written.load(std::memory_order_relaxed);
  const size_t room = size - static_cast<size_t>(at - ring.read.load(std::memory_order_acquire));
  Job& job = queue.jobs.front();
  const size_t place = static_cast<size_t>(at) & (size - 1);
  const size_t n = std::min({room, job.left, size - place, kPiece});
  if (n == 0) return false;
  std::memcpy(ring.data + place, job.data, n);
  ring.written.store(at + n, std::memory_order_seq_cst);
  job.data += n;
  job.left -= n;
  if (job.left == 0) queue.jobs.pop_front(), ++queue.done;
  SharedMemory::Bell& bell = memory_->bell(lane_, peer);
  if (bell.sleeping.load(std::memory_order_seq_cst)) wake_one(bell.rings);
  return true;
}

bool SharedTransport::pull(int peer) {
  Queue& queue = receives_[peer];
  if (queue.jobs.empty()) return false;
  SharedMemory::Ring& ring = memory_->ring(lane_, peer, rank_);
  const size_t size = memory_->ring_bytes_;
  const uint64_t at = ring.read.load(std::memory_order_relaxed);
  const size_t ready = static_cast<size_t>(ring.written.load(std::memory_order_acquire) - at);
  Job& job = queue.jobs.front();
  const size_t place = static_cast<size_t>(at) & (size - 1);
  const size_t n = std::min({ready, job.left, size - place, kPiece});
  if (n == 0) return false;
  std::memcpy(job.data, ring.data + place, n);
  ring.read.store(at + n, std::memory_order_seq_cst);
  job.data += n;
  job.left -= n;
  if (job.left == 0) queue.jobs.pop_front(), ++queue.done;
  SharedMemory::Bell& bell = memory_->bell(lane_, peer);
  if (bell.sleeping.load(std::memory_order_seq_cst)) wake_one(bell.rings);
  return true;
}

bool SharedTransport::pump() {
  bool moved = false;
  const int size = memory_->size_;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank_ + i) % size;
    moved |= push(peer);
    moved |= pull(peer);
  }
  return moved;
}

void SharedTransport::check_peer(const Ticket& ticket) {
  const bool left = memory_->left(ticket.peer);
  if (!left && !dead_(ticket.peer)) return;
  // What it wrote before it went is still in the ring.
  if (pump() || done(ticket)) return;
  throw PeerLost{ticket.peer, left ? "it has dropped the group" : "its process ended"};
}

void SharedTransport::sleep() {
  SharedMemory::Bell& bell = memory_->bell(lane_, rank_);
  const uint32_t heard = bell.rings.load();
  bell.sleeping.store(1, std::memory_order_seq_cst);
  // A peer that copied before it could see this rank sleep has rung nobody: look once more.
  if (!pump() && !interrupted_.load()) {
    const timespec limit{.tv_sec = 0, .tv_nsec = kSleep};
    syscall(SYS_futex, &bell.rings, FUTEX_WAIT, heard, &limit, nullptr, 0);
  }
  bell.sleeping.store(0, std::memory_order_seq_cst);
}

void SharedTransport::wait(const Ticket& ticket) {
  while (!done(ticket)) {
    if (interrupted_.load()) throw Interrupted{};
    if (pump()) continue;
    check_peer(ticket);
    if (!done(ticket)) sleep();
  }
}

void SharedTransport::wake() { wake_one(memory_->bell(lane_, rank_).rings); }

void SharedTransport::interrupt() {
  interrupted_.store(true);
  wake();
}

std::optional<ProcessWatch> ProcessWatch::open(pid_t process) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return std::nullopt;
  return ProcessWatch(descriptor);
}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

bool ProcessWatch::ended() const {
  pollfd entry{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace sauropod::comm

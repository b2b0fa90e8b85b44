// The bytes of a flight recorder's file, as docs/flight-recorder.md specifies them. Only for files of this room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sauropod::comm::flight {

// Fields that are read while they are written are atomic; all are little-endian and naturally aligned.
using U32 = std::atomic<uint32_t>;
using U64 = std::atomic<uint64_t>;

constexpr char kMagic[8] = {'S', 'A', 'U', 'R', 'F', 'L', 'T', '1'};
constexpr size_t kGroups = 64;
constexpr size_t kCalls = 256;
constexpr size_t kMembers = 4096;
constexpr size_t kTransfers = 4;

struct Header {
  char magic[8];
  uint32_t rank;
  uint32_t size;
  uint32_t process;
  U32 status;      // 0 running, 1 left, 2 failed, 3 gave up
  uint64_t started;
  U64 beat;        // time of the last sign of life, about one a second
  char host[64];   // zero-terminated, as all text
  char failure[968];
};

struct Transfer {
  uint16_t peer;
  uint16_t receive;  // 1, or 0 for a send
  uint32_t number;   // of this peer and direction, from 1
};

struct Call {
  U64 order;  // of this group on this rank, from 1; 0 while the entry is being written
  uint64_t number;
  uint8_t kind;
  uint8_t reserved[3];
  uint32_t transfer_count;
  uint64_t bytes;
  U64 issued, started, blocked, finished;
  char label[48];
  Transfer transfers[kTransfers];
};

struct Group {
  U32 used;  // 1 while the group exists
  uint32_t size;
  uint32_t self;
  uint32_t timeout;  // in milliseconds
  U64 collectives, exchanges, issued;
  char name[56];
  uint32_t members[kMembers];
  U32 sent[kMembers];
  U32 received[kMembers];
  Call calls[kCalls];
};

struct File {
  Header header;
  uint8_t padding[4096 - sizeof(Header)];
  Group groups[kGroups];
};

static_assert(sizeof(Header) == 1072 && sizeof(Call) == 144 && offsetof(Group, members) == 96 &&
              offsetof(Group, calls) == 96 + 12 * kMembers && offsetof(File, groups) == 4096);

}  // namespace sauropod::comm::flight

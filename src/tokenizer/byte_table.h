// Distinct byte strings, numbered in the order they were first seen. Open addressing over one arena.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::tokenizer {

class ByteTable {
 public:
  // The number of the string; a new one when it was not there.
  uint32_t add(std::string_view bytes);
  std::string_view operator[](uint32_t id) const {
    return {arena_.data() + offsets_[id], static_cast<size_t>(offsets_[id + 1] - offsets_[id])};
  }
  uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  // All strings back to back; string i is at [offset(i), offset(i + 1)).
  const std::string& arena() const { return arena_; }
  uint64_t offset(uint32_t id) const { return offsets_[id]; }

 private:
  // The upper half of the hash spares most comparisons of bytes; id + 1, 0 for an empty slot.
  struct Slot {
    uint32_t hash = 0, id = 0;
  };
  void grow();
  std::string arena_;
  std::vector<uint64_t> offsets_{0};
  std::vector<Slot> slots_;
};

}  // namespace sauropod::tokenizer

#include "tokenizer/byte_table.h"

#include "base/hash.h"

namespace sauropod::tokenizer {

uint32_t ByteTable::add(std::string_view bytes) {
  if ((size() + 1) * size_t{2} > slots_.size()) grow();
  const uint64_t hash = base::hash64(bytes);
  const auto upper = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.id == 0) {
      arena_ += bytes;
      offsets_.push_back(arena_.size());
      slot = {upper, size()};
      return size() - 1;
    }
    if (slot.hash == upper && (*this)[slot.id - 1] == bytes) return slot.id - 1;
  }
}

void ByteTable::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, {});
  const size_t mask = slots_.size() - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    const uint64_t hash = base::hash64((*this)[id]);
    size_t at = hash & mask;
    while (slots_[at].id != 0) at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), id + 1};
  }
}

}  // namespace sauropod::tokenizer

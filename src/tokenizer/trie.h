// A double-array trie from byte strings to item ids (Aoe 1989), laid out for walking: one 64-bit load
// a byte gives the check, the item that ends here and where the children are.
//
// A cell holds its label (9 bits; 256 for a free cell, so that it never matches), its base (27 bits)
// and the id of the item that ends at it plus one (28 bits, 0 for none). The child of a node by byte
// b is the cell `base ^ b`, and it exists when that cell's label is b. No two nodes share a base, and
// base 0 belongs to the nodes without children: its cells are never used.
//
// Cells are laid out breadth first, so that the first levels, which every walk visits, lie together.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sauropod::tokenizer {

class Trie {
 public:
  // Keys are distinct, not empty and sorted by their bytes; ids are below 2^28 - 1.
  static Trie build(std::span<const std::string_view> keys, std::span<const int32_t> ids);

  // A place in the trie. Walks begin at root() and go on while child() is a match.
  using Cell = uint64_t;
  Cell root() const { return cells_[0]; }
  Cell child(Cell cell, unsigned char byte) const { return cells_[base(cell) ^ byte]; }
  static bool matches(Cell child, unsigned char byte) { return (child & 0x1FF) == byte; }
  // The item that ends at the cell, or -1.
  static int32_t item(Cell cell) { return static_cast<int32_t>(cell >> 36) - 1; }

  // The id of a key, or -1.
  int32_t find(std::string_view key) const;
  size_t cells() const { return cells_.size(); }

 private:
  static uint32_t base(Cell cell) { return static_cast<uint32_t>(cell >> 9) & 0x7FFFFFF; }
  std::vector<Cell> cells_;
};

}  // namespace sauropod::tokenizer

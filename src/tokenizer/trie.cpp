#include "tokenizer/trie.h"

#include <algorithm>

#include "base/error.h"

namespace sauropod::tokenizer {
namespace {

constexpr uint64_t free_label = 256;
constexpr uint32_t block_size = 256;
// Blocks further back than this are no longer searched for room: they are nearly full.
constexpr uint32_t open_blocks = 16;
constexpr uint32_t max_cells = 1U << 27;

uint64_t make_cell(uint64_t label, uint64_t base, int32_t item) {
  return label | base << 9 | static_cast<uint64_t>(item + 1) << 36;
}

// Hands out cells: a list of the free cells of the open blocks, in order.
class Allocator {
 public:
  explicit Allocator(std::vector<uint64_t>& cells) : cells_(cells) {
    add_block();
    // Cell 0 is the root; no node has base 0, so the rest of its block serves other bases.
    take(0);
    base_used_[0] = true;
  }

  // A base whose cells for all labels (ascending) are free; takes them.
  uint32_t place(std::span<const unsigned char> labels) {
    for (;;) {
      for (uint32_t cell = next_[head]; cell != head; cell = next_[cell]) {
        const uint32_t base = (cell - 1) ^ labels[0];
        if (base_used_[base]) continue;
        const bool fits = std::all_of(labels.begin() + 1, labels.end(),
                                      [&](unsigned char l) { return !taken_[base ^ l]; });
        if (!fits) continue;
        base_used_[base] = true;
        for (const unsigned char label : labels) take(base ^ label);
        return base;
      }
      add_block();
    }
  }

 private:
  // The list is over cell + 1; 0 is its head.
  static constexpr uint32_t head = 0;

  void add_block() {
    const auto begin = static_cast<uint32_t>(cells_.size());
    SAUROPOD_CHECK(begin + block_size <= max_cells, "the vocabulary needs more than 2^27 trie cells");
    cells_.resize(begin + block_size, make_cell(free_label, 0, -1));
    taken_.resize(begin + block_size, false);
    base_used_.resize(begin + block_size, false);
    next_.resize(begin + block_size + 1, head);
    previous_.resize(begin + block_size + 1, head);
    for (uint32_t cell = begin; cell < begin + block_size; ++cell) {
      const uint32_t last = previous_[head];
      next_[last] = cell + 1;
      previous_[cell + 1] = last;
      next_[cell + 1] = head;
      previous_[head] = cell + 1;
    }
    if (begin / block_size >= open_blocks) {
      const uint32_t closed = begin - open_blocks * block_size;
      for (uint32_t cell = closed; cell < closed + block_size; ++cell)
        if (!taken_[cell]) unlink(cell);
    }
  }

  void take(uint32_t cell) {
    taken_[cell] = true;
    unlink(cell);
  }

  void unlink(uint32_t cell) {
    const uint32_t before = previous_[cell + 1], after = next_[cell + 1];
    next_[before] = after;
    previous_[after] = before;
  }

  std::vector<uint64_t>& cells_;
  std::vector<bool> taken_, base_used_;
  std::vector<uint32_t> next_, previous_;
};

}  // namespace

Trie Trie::build(std::span<const std::string_view> keys, std::span<const int32_t> ids) {
  SAUROPOD_CHECK(keys.size() == ids.size());
  // A node is the range of keys that share its prefix; nodes wait in breadth-first order.
  struct Node {
    uint32_t begin, end, depth, cell;
  };
  Trie trie;
  Allocator allocator(trie.cells_);
  std::vector<Node> queue{{0, static_cast<uint32_t>(keys.size()), 0, 0}};
  std::vector<Node> children;
  std::vector<unsigned char> labels;
  for (size_t next = 0; next < queue.size(); ++next) {
    const Node node = queue[next];
    children.clear();
    labels.clear();
    int32_t item = -1;
    for (uint32_t k = node.begin; k < node.end; ++k) {
      if (keys[k].size() == node.depth) {
        SAUROPOD_CHECK(node.depth > 0 && item < 0, "trie keys must be distinct and not empty");
        item = ids[k];
        continue;
      }
      const auto label = static_cast<unsigned char>(keys[k][node.depth]);
      if (labels.empty() || labels.back() != label) {
        SAUROPOD_CHECK(labels.empty() || labels.back() < label, "trie keys must be sorted");
        labels.push_back(label);
        children.push_back({k, k, node.depth + 1, 0});
      }
      children.back().end = k + 1;
    }
    const uint32_t base = labels.empty() ? 0 : allocator.place(labels);
    const uint64_t label = node.depth == 0 ? free_label
                                           : static_cast<unsigned char>(
                                                 keys[node.begin][node.depth - 1]);
    trie.cells_[node.cell] = make_cell(label, base, item);
    for (size_t c = 0; c < children.size(); ++c) {
      children[c].cell = base ^ labels[c];
      queue.push_back(children[c]);
    }
  }
  return trie;
}

int32_t Trie::find(std::string_view key) const {
  Cell cell = root();
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    cell = child(cell, byte);
    if (!matches(cell, byte)) return -1;
  }
  return item(cell);
}

}  // namespace sauropod::tokenizer

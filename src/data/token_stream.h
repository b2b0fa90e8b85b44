// One corpus as an endless stream of tokens: its documents in a new order every epoch, back to back
// (docs/data.md). Any place in the stream is found without reading what comes before it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "formats/indexed_dataset.h"

namespace sauropod::data {

// Thread-safe. The first read in an epoch walks the lengths of all documents once, on several
// threads (about 0.3 s for a million documents on one); readers arriving meanwhile wait. An epoch
// then costs half a byte of memory for each document.
class TokenStream {
 public:
  // `key` decides the order. `window` is how far apart in tokens the places in use at one time lie:
  // so many epochs' tables are kept. The corpus must hold at least one token.
  TokenStream(std::shared_ptr<const formats::IndexedDataset> dataset, uint64_t key,
              uint64_t window);

  // Tokens [position, position + out.size()) of the stream; epoch e begins at e x tokens. Throws
  // base::Error for ids outside `vocabulary` (0: not checked).
  void read(uint64_t position, std::span<int32_t> out, int64_t vocabulary = 0) const;

  const formats::IndexedDataset& dataset() const { return *dataset_; }

 private:
  // starts[j]: the place within the epoch of the document with rank j x kStride.
  struct Epoch {
    uint64_t key;
    std::vector<uint64_t> starts;
  };
  std::shared_ptr<const Epoch> epoch(uint64_t number) const;
  std::shared_ptr<const Epoch> build(uint64_t number) const;
  void read_epoch(uint64_t number, uint64_t begin, std::span<int32_t> out,
                  int64_t vocabulary) const;

  std::shared_ptr<const formats::IndexedDataset> dataset_;
  uint64_t key_;
  size_t kept_;
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::shared_ptr<const Epoch>> epochs_;
};

}  // namespace sauropod::data

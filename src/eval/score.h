// How well a model predicts a text.
#pragma once

#include <cstdint>
#include <numbers>

namespace sauropod::eval {

// Bits per byte counts what the model needs for every token, the end of each document included,
// against the bytes of the text alone: a figure that models with different vocabularies and compressors
// share.
struct Score {
  double nats = 0;     // Σ −ln p(token)
  int64_t tokens = 0;  // predicted
  int64_t bytes = 0;   // of text that these tokens stand for

  // 0 where nothing was predicted.
  double nats_per_token() const { return tokens == 0 ? 0 : nats / static_cast<double>(tokens); }
  double bits_per_byte() const {
    return bytes == 0 ? 0 : nats / std::numbers::ln2 / static_cast<double>(bytes);
  }
  double bytes_per_token() const {
    return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
  }

  Score& operator+=(const Score& other) {
    nats += other.nats;
    tokens += other.tokens;
    bytes += other.bytes;
    return *this;
  }
};

}  // namespace sauropod::eval

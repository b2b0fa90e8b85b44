#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/reduce.h"

namespace sauropod::comm {
namespace {

constexpr int64_t kSmall = 64 << 10;     // bytes: below it an all_reduce is one round
constexpr int64_t kScratch = 4 << 20;    // bytes of scratch memory, for all peers together
constexpr int64_t kWindow = 4;           // chunks under way between a pair
constexpr int64_t kAlignment = 64;       // bytes: parts of an all_reduce begin on a cache line

class Run {
 public:
  Run(Transport& transport, int rank, int size, std::vector<std::byte>& scratch)
      : transport_(transport), rank_(rank), size_(size), scratch_(scratch) {}

  void all_gather(const std::byte* input, std::byte* output, const std::vector<int64_t>& offsets, int64_t width) {
    const auto part = [&](int rank) { return output + offsets[rank] * width; };
    const auto bytes = [&](int rank) { return static_cast<size_t>((offsets[rank + 1] - offsets[rank]) * width); };
    std::vector<Transport::Ticket> tickets;
    // Each rank begins with its neighbour, so that not all send to rank 0 at first.
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ - step + size_) % size_;
      tickets.push_back(transport_.receive(from, part(from), bytes(from)));
    }
    for (int step = 1; step < size_; ++step)
      tickets.push_back(transport_.send((rank_ + step) % size_, input, bytes(rank_)));
    if (input != part(rank_) && bytes(rank_) > 0) std::memcpy(part(rank_), input, bytes(rank_));
    for (const auto& ticket : tickets) transport_.wait(ticket);
  }

  void reduce_scatter(const std::byte* input, std::byte* output, const std::vector<int64_t>& offsets,
                      at::ScalarType type, int64_t width, Reduce how) {
    const int64_t chunk =
        std::max<int64_t>(kScratch / ((size_ - 1) * kWindow) / kAlignment * kAlignment, 16 << 10) / width;
    const auto length = [&](int rank) { return offsets[rank + 1] - offsets[rank]; };
    const auto chunk_length = [&](int rank, int64_t step) {
      return std::clamp<int64_t>(length(rank) - step * chunk, 0, chunk);
    };
    int64_t steps = 0;
    for (int rank = 0; rank < size_; ++rank) steps = std::max(steps, (length(rank) + chunk - 1) / chunk);
    reserve(static_cast<size_t>((size_ - 1) * kWindow * chunk * width));
    const auto slot = [&](int peer, int64_t step) {
      const int64_t place = peer < rank_ ? peer : peer - 1;
      return scratch_.data() + (place * kWindow + step % kWindow) * chunk * width;
    };

    struct Posted {
      Transport::Ticket send, receive;
    };
    std::vector<Posted> posted(static_cast<size_t>(size_) * kWindow);
    const auto at = [&](int peer, int64_t step) -> Posted& { return posted[peer * kWindow + step % kWindow]; };
    const auto post = [&](int64_t step) {
      for (int i = 1; i < size_; ++i) {
        const int to = (rank_ + i) % size_, from = (rank_ - i + size_) % size_;
        at(to, step).send = transport_.send(to, input + (offsets[to] + step * chunk) * width,
                                            static_cast<size_t>(chunk_length(to, step) * width));
        at(from, step).receive = transport_.receive(from, slot(from, step),
                                                    static_cast<size_t>(chunk_length(rank_, step) * width));
      }
    };
    for (int64_t step = 0; step < std::min(kWindow, steps); ++step) post(step);
    std::vector<const void*> sources(static_cast<size_t>(size_));
    for (int64_t step = 0; step < steps; ++step) {
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) {
          sources[peer] = input + (offsets[rank_] + step * chunk) * width;
          continue;
        }
        sources[peer] = slot(peer, step);
        transport_.wait(at(peer, step).receive);
      }
      if (const int64_t n = chunk_length(rank_, step); n > 0)
        reduce(type, how, sources, output + step * chunk * width, n);
      // Before the sends of this step are forgotten, they must be done: at the latest they are when the peer
      // has added them, and this doesn't wait in practice.
      for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_) transport_.wait(at(peer, step).send);
      if (step + kWindow < steps) post(step + kWindow);
    }
  }

  void all_reduce(std::byte* data, int64_t count, at::ScalarType type, int64_t width, Reduce how) {
    std::vector<int64_t> offsets(static_cast<size_t>(size_) + 1);
    if (count * width < kSmall) {
      for (int i = 0; i <= size_; ++i) offsets[i] = i * count;
      reserve(static_cast<size_t>(size_ * count * width));
      all_gather(data, scratch_.data(), offsets, width);
      std::vector<const void*> sources;
      for (int i = 0; i < size_; ++i) sources.push_back(scratch_.data() + offsets[i] * width);
      if (count > 0) reduce(type, how, sources, data, count);
      return;
    }
    const int64_t line = kAlignment / width;
    for (int i = 0; i < size_; ++i) offsets[i] = count / line * i / size_ * line;
    offsets[size_] = count;
    std::byte* own = data + offsets[rank_] * width;
    reduce_scatter(data, own, offsets, type, width, how);
    all_gather(own, data, offsets, width);
  }

  // From the root to each rank: for the small tensors that are broadcast in practice.
  void broadcast(std::byte* data, size_t bytes, int root) {
    std::vector<Transport::Ticket> tickets;
    if (rank_ != root) {
      tickets.push_back(transport_.receive(root, data, bytes));
    } else {
      for (int i = 1; i < size_; ++i) tickets.push_back(transport_.send((rank_ + i) % size_, data, bytes));
    }
    for (const auto& ticket : tickets) transport_.wait(ticket);
  }

  // Dissemination (Hensgen, Finkel, Manber 1988): after round i a rank has heard, through others, from 2^i ranks
  // before it.
  void barrier() {
    for (int distance = 1; distance < size_; distance *= 2) {
      std::byte out{1}, in{0};
      const auto sent = transport_.send((rank_ + distance) % size_, &out, 1);
      const auto received = transport_.receive((rank_ - distance + size_) % size_, &in, 1);
      transport_.wait(received);
      transport_.wait(sent);
    }
  }

 private:
  void reserve(size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
  }

  Transport& transport_;
  int rank_;
  int size_;
  std::vector<std::byte>& scratch_;
};

const std::byte* read(const at::Tensor& tensor) { return static_cast<const std::byte*>(tensor.const_data_ptr()); }
std::byte* write(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

}  // namespace

void run_collective(Transport& transport, int rank, int size, const Operation& op, std::vector<std::byte>& scratch) {
  Run run(transport, rank, size, scratch);
  switch (op.kind) {
    case Kind::all_reduce:
      return run.all_reduce(write(op.output), op.output.numel(), op.output.scalar_type(),
                            static_cast<int64_t>(op.output.itemsize()), op.reduce);
    case Kind::all_gather:
      return run.all_gather(read(op.input), write(op.output), op.offsets, static_cast<int64_t>(op.output.itemsize()));
    case Kind::reduce_scatter:
      return run.reduce_scatter(read(op.input), write(op.output), op.offsets, op.input.scalar_type(),
                                static_cast<int64_t>(op.input.itemsize()), op.reduce);
    case Kind::broadcast: return run.broadcast(write(op.output), op.output.nbytes(), op.root);
    case Kind::barrier: return run.barrier();
    case Kind::exchange: break;
  }
  SAUROPOD_CHECK(false, "{} is no collective", name_of(op.kind));
}

}  // namespace sauropod::comm

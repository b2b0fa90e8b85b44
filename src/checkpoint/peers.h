// The ranks that write or read one checkpoint together, as far as this room needs to know them: bytes
// go to rank 0, and rank 0's bytes go to everyone. Whoever has ranks implements the interface over
// its communicator; a process by itself is Alone.
//
// All calls are collective: every rank makes the same ones in the same order, from the thread that
// issues its other collectives. No thread of this room makes any.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::checkpoint {

class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;  // 0 to size() - 1
  virtual int size() const = 0;
  // Both throw base::Error when a rank can't be reached (it died, or did not come in time); then the
  // Peers are of no more use. Bytes may be any, and empty.
  // On rank 0 what each rank gave, by rank; elsewhere nothing.
  virtual std::vector<std::string> gather(std::string bytes) = 0;
  // What rank 0 gave, on every rank; what others give is ignored.
  virtual std::string broadcast(std::string bytes) = 0;
};

class Alone final : public Peers {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(std::string bytes) override { return {std::move(bytes)}; }
  std::string broadcast(std::string bytes) override { return bytes; }
};

// Rank 0 does `work`, and every rank gets its result. What `work` throws is rethrown on rank 0; the
// others throw a base::Error with its text.
std::string decide(Peers& peers, const std::function<std::string()>& work);

// what() of any exception.
std::string text_of(const std::exception_ptr& error);
// "text" from a process by itself, "rank 3: text" from one of several.
std::string said_by(const Peers& peers, size_t rank, std::string_view text);

// Several byte strings as one, and back.
std::string pack(const std::vector<std::string>& parts);
std::vector<std::string> unpack(std::string_view bytes);

}  // namespace sauropod::checkpoint

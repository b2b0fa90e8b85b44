#include "checkpoint/peers.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace sauropod::checkpoint {

std::string decide(Peers& peers, const std::function<std::string()>& work) {
  std::string result;  // '+' and the result, or '-' and the error
  std::exception_ptr error;
  if (peers.rank() == 0) {
    try {
      result = "+" + work();
    } catch (...) {
      error = std::current_exception();
      result = "-" + text_of(error);
    }
  }
  result = peers.broadcast(std::move(result));
  if (error) std::rethrow_exception(error);
  SAUROPOD_CHECK(!result.empty());
  if (result.front() == '-') throw base::Error(said_by(peers, 0, std::string_view(result).substr(1)));
  return result.substr(1);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

std::string said_by(const Peers& peers, size_t rank, std::string_view text) {
  return peers.size() == 1 ? std::string(text) : fmt::format("rank {}: {}", rank, text);
}

std::string pack(const std::vector<std::string>& parts) {
  std::string bytes;
  for (const std::string& part : parts) {
    const uint64_t size = part.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(part);
  }
  return bytes;
}

std::vector<std::string> unpack(std::string_view bytes) {
  std::vector<std::string> parts;
  while (!bytes.empty()) {
    uint64_t size = 0;
    SAUROPOD_CHECK(bytes.size() >= sizeof(size));
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
    SAUROPOD_CHECK(bytes.size() >= size);
    parts.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return parts;
}

}  // namespace sauropod::checkpoint

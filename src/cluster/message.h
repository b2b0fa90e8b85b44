// What the launcher and its agents say to each other: JSON objects of one line, some with bytes after
// them. Described in docs/launch.md.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sauropod::cluster {

// The line with which an agent begins. What comes before it is not the agent's: a login shell's words.
inline constexpr std::string_view kGreeting = "sauropod launch agent 1";

struct Message {
  nlohmann::json fields;
  std::string bytes;  // as many as the field "bytes" says
};

// Writes all of it. False when nobody reads any more.
bool write_all(int descriptor, std::string_view bytes);
bool send(int descriptor, nlohmann::json fields, std::string_view bytes = {});

// Cuts what comes in from one descriptor into messages.
class MessageReader {
 public:
  // `expect_greeting`: messages begin after it.
  explicit MessageReader(bool expect_greeting) : greeted_(!expect_greeting) {}

  // Reads once. False at the end, or when the descriptor fails.
  bool read_from(int descriptor);
  // The next whole message. Throws base::Error when it can't be one.
  std::optional<Message> next();
  // What came instead of the greeting.
  const std::string& noise() const { return noise_; }

 private:
  std::optional<std::string> take_line();

  bool greeted_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not taken yet
  std::optional<Message> unfinished_;
  std::string noise_;
};

}  // namespace sauropod::cluster

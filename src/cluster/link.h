// The launcher's connection to the agent of one host: a child of this process, or one that ssh starts.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cluster/message.h"
#include "cluster/process.h"

namespace sauropod::cluster {

class Link {
 public:
  // `shell`: the words before the host's name; none: the agent runs on this machine. Throws base::Error when
  // the command can't be started.
  Link(std::string host, const std::vector<std::string>& shell, const std::string& binary);
  ~Link();  // ends the agent, and with it its ranks
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::string& host() const { return host_; }
  bool remote() const { return remote_; }
  bool open() const { return static_cast<bool>(output_); }
  int output() const { return output_.number(); }
  int error() const { return error_.number(); }

  void say(const nlohmann::json& fields);
  void read_output();
  void read_error();
  std::optional<Message> next();
  std::chrono::steady_clock::time_point heard() const { return heard_; }
  // Lines of ssh and the agent themselves that have come since the last call.
  std::vector<std::string> take_lines();

  // Why there is no agent (any more): what ssh said, and what to do about it. Ends the connection.
  std::string trouble();
  void close();  // the agent kills its ranks

 private:
  std::optional<Ending> wait(std::chrono::milliseconds limit);

  std::string host_;
  std::string binary_;
  bool remote_;
  std::string command_;  // for messages
  pid_t process_ = 0;
  std::optional<Ending> ending_;
  Descriptor input_, output_, error_;
  MessageReader reader_{/*expect_greeting=*/true};
  std::string unfinished_;
  std::vector<std::string> lines_;
  std::deque<std::string> last_lines_;
  bool heard_hello_ = false;
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
};

// A word as a shell takes it: in quotes when it needs them.
std::string quoted(const std::string& word);

}  // namespace sauropod::cluster

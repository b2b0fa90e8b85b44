#include "cluster/link.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/error.h"

namespace sauropod::cluster {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeaves = 8s;  // an agent kills its ranks and gives up on them in less
constexpr size_t kLastLines = 8;

}  // namespace

std::string quoted(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

Link::Link(std::string host, const std::vector<std::string>& shell, const std::string& binary)
    : host_(std::move(host)), binary_(binary), remote_(!shell.empty()) {
  Command command;
  if (remote_) {
    // The words after the host's name are joined by ssh and read by a shell there.
    command.words = shell;
    command.words.insert(command.words.end(), {host_, quoted(binary), "launch-agent"});
    command.program = shell.front();
    command_ = shell.front();
  } else {
    command.program = "/proc/self/exe";
    command.words = {binary, "launch-agent"};
    command_ = "the agent";
  }
  command.environment = changed_environment({});
  Pipe input = make_pipe(), output = make_pipe(), error = make_pipe();
  command.input = input.reader.number();
  command.output = output.writer.number();
  command.error = error.writer.number();
  process_ = spawn(command);
  input_ = std::move(input.writer);
  output_ = std::move(output.reader);
  error_ = std::move(error.reader);
}

Link::~Link() {
  close();
  if (!wait(kLeaves)) {
    kill(-process_, SIGKILL);
    wait(1s);
  }
}

void Link::close() {
  input_.close();
  output_.close();
  error_.close();
}

void Link::say(const nlohmann::json& fields) {
  if (input_ && !send(input_.number(), fields)) input_.close();
}

void Link::read_output() {
  if (!reader_.read_from(output_.number())) output_.close();
  else heard_ = std::chrono::steady_clock::now();
}

void Link::read_error() {
  char chunk[4096];
  const ssize_t n = ::read(error_.number(), chunk, sizeof(chunk));
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) {
    if (!unfinished_.empty()) unfinished_ += '\n';
    error_.close();
  } else {
    unfinished_.append(chunk, static_cast<size_t>(n));
  }
  size_t end;
  while ((end = unfinished_.find('\n')) != std::string::npos) {
    std::string line = unfinished_.substr(0, end);
    unfinished_.erase(0, end + 1);
    if (line.ends_with('\r')) line.pop_back();
    last_lines_.push_back(line);
    if (last_lines_.size() > kLastLines) last_lines_.pop_front();
    lines_.push_back(std::move(line));
  }
}

std::optional<Message> Link::next() {
  auto message = reader_.next();
  if (message) heard_hello_ = true;
  return message;
}

std::vector<std::string> Link::take_lines() { return std::exchange(lines_, {}); }

// Nothing when the process has not ended by then.
std::optional<Ending> Link::wait(std::chrono::milliseconds limit) {
  for (const auto end = std::chrono::steady_clock::now() + limit; !ending_;) {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) != 0)
      ending_ = WIFSIGNALED(status) ? Ending{.signal = WTERMSIG(status)} : Ending{.code = WEXITSTATUS(status)};
    else if (std::chrono::steady_clock::now() >= end)
      break;
    else
      std::this_thread::sleep_for(5ms);
  }
  return ending_;
}

std::string Link::trouble() {
  for (pollfd entry; error_;) {
    entry = {.fd = error_.number(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, 500) <= 0) break;
    read_error();
  }
  close();
  const auto ending = wait(1s);
  if (!ending) kill(-process_, SIGKILL);
  std::string said = fmt::format("{}", fmt::join(last_lines_, "\n    "));
  if (said.empty()) said = reader_.noise();
  std::string text = fmt::format("host {}: {} {}{}{}", host_, command_, ending ? describe(*ending) : "does not answer",
                                 said.empty() ? "" : ":\n    ", said);
  const int code = ending && !heard_hello_ && remote_ ? ending->code : 0;
  if (code == 127 || code == 126)
    text += fmt::format("\nIs {} on that host? --remote-binary says where it is there", binary_);
  else if (code == 255)
    text += fmt::format("\nDoes `{} {} true` work without a password?", command_, host_);
  return text;
}

}  // namespace sauropod::cluster

#include "cluster/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <utility>

#include "base/error.h"

namespace sauropod::cluster {
namespace {

using namespace std::chrono_literals;

// A process that has left the group may hold the pipe open: output is waited for this long.
constexpr auto kDrain = 300ms;

}  // namespace

RankProcess::RankProcess(Command command, int columns, Print print, Kill kill)
    : print_(std::move(print)), kill_(std::move(kill)) {
  Pipe output = make_pipe();
  Pipe error = columns > 0 ? make_terminal(columns) : make_pipe();
  command.output = output.writer.number();
  command.error = error.writer.number();
  process_ = spawn(command);
  output_ = std::move(output.reader);
  error_ = std::move(error.reader);
  for (const Descriptor* end : {&output_, &error_}) fcntl(end->number(), F_SETFL, O_NONBLOCK);
}

// False at the end. A terminal whose other side is closed fails with EIO.
bool RankProcess::read_some(bool error) {
  char chunk[65536];
  ssize_t n;
  do n = ::read(side(error).number(), chunk, sizeof(chunk));
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return true;
  if (n <= 0) return false;
  print_(error, std::string_view(chunk, static_cast<size_t>(n)));
  return true;
}

void RankProcess::read(bool error) {
  if (!read_some(error)) side(error).close();
}

void RankProcess::resize(int columns) {
  if (error_ && isatty(error_.number())) set_columns(error_.number(), columns);
}

bool RankProcess::look() {
  if (ending_) return false;
  const auto id = static_cast<id_t>(process_);
  const bool before = stopped_;
  for (siginfo_t info{}; waitid(P_PID, id, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0;
       info = {})
    stopped_ = info.si_code == CLD_STOPPED;
  siginfo_t info{};
  if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return stopped_ != before;
  kill_(-process_, SIGKILL);  // while its number, and so the group's, can't be given to another one
  waitid(P_PID, id, &info, WEXITED);
  stopped_ = false;
  ending_ = Ending{.code = info.si_code == CLD_EXITED ? info.si_status : 0,
                   .signal = info.si_code == CLD_EXITED ? 0 : info.si_status,
                   .by_launcher = signalled_};
  const auto end = std::chrono::steady_clock::now() + kDrain;
  for (const bool error : {false, true}) {
    while (side(error)) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd entry{.fd = side(error).number(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, std::max(0, static_cast<int>(left.count()))) <= 0) side(error).close();
      else read(error);
    }
  }
  return true;
}

void RankProcess::signal(int number) {
  if (ending_) return;
  if (number != SIGCONT) signalled_ = true;
  kill_(-process_, number);
}

std::string RankProcess::state() const {
  std::string text = "its state is not known";
  std::ifstream status(fmt::format("/proc/{}/status", process_));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("State:")) text = "state " + line.substr(line.find_first_not_of(" \t", 6));
  std::ifstream channel(fmt::format("/proc/{}/wchan", process_));
  std::string function;
  if (channel >> function && function != "0") text += ", in " + function;
  return text;
}

}  // namespace sauropod::cluster

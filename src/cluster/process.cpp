#include "cluster/process.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "config/environment.h"

namespace sauropod::cluster {
namespace {

constexpr const char* kSupervisor = "SAUROPOD_SUPERVISOR";

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) base::fail("a pipe can't be made: {}", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Pipe make_terminal(int columns) {
  int master, slave;
  if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0)
    base::fail("a pseudo-terminal can't be made: {}", std::strerror(errno));
  Pipe pipe{Descriptor(master), Descriptor(slave)};
  for (const int descriptor : {master, slave}) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  termios settings{};
  tcgetattr(slave, &settings);
  cfmakeraw(&settings);
  tcsetattr(slave, TCSANOW, &settings);
  set_columns(master, columns);
  return pipe;
}

void set_columns(int terminal, int columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(std::clamp(columns, 1, 10000));
  ioctl(terminal, TIOCSWINSZ, &size);
}

pid_t spawn(const Command& command) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int given[] = {command.input, command.output, command.error};
  for (int number = 0; number < 3; ++number) {
    if (given[number] >= 0)
      posix_spawn_file_actions_adddup2(&actions, given[number], number);
    else
      posix_spawn_file_actions_addopen(&actions, number, "/dev/null", O_RDWR, 0);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t process = 0;
  const int error = posix_spawnp(&process, command.program.c_str(), &actions, &attributes,
                                pointers(command.words).data(), pointers(command.environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) base::fail_errno("start", command.words.at(0), error);
  return process;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

std::string describe(const Ending& ending) {
  std::string text = ending.signal ? "was killed by " + signal_name(ending.signal)
                                   : fmt::format("exited with code {}", ending.code);
  if (!ending.cause.empty()) text += ": " + ending.cause;
  return text;
}

void follow_supervisor(int argc, char** argv) {
  const auto supervisor = config::launch_variable(kSupervisor);
  if (!supervisor) return;
  unsetenv(kSupervisor);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(getppid()) != *supervisor) _exit(static_cast<int>(base::Exit::failed));
  if (argc < 3 || std::strcmp(argv[1], "launch-exec") != 0) return;
  execvp(argv[2], argv + 2);
  std::fprintf(stderr, "sauropod: %s can't be started: %s\n", argv[2], std::strerror(errno));
  _exit(127);
}

std::string supervisor_variable() { return fmt::format("{}={}", kSupervisor, getpid()); }

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result = config::environment();
  for (const std::string& change : changes) {
    const auto name = name_of(change);
    std::erase_if(result, [&](const std::string& entry) { return name_of(entry) == name; });
    if (name.size() < change.size()) result.push_back(change);
  }
  return result;
}

void hold_standard_descriptors() {
  int descriptor;
  do descriptor = ::open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor < 3);
  if (descriptor >= 0) ::close(descriptor);
}

Signals::Signals(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN && signal != SIGCHLD) continue;  // nohup
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor_) base::fail("signals can't be read: {}", std::strerror(errno));
  ::signal(SIGPIPE, SIG_IGN);
  // Ranks are in process groups of their own and would go on: what watches over them does too.
  ::signal(SIGTSTP, SIG_IGN);
}

Signals::~Signals() = default;

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  if (::read(descriptor_.number(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace sauropod::cluster

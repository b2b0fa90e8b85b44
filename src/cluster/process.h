// Starting processes, and ending with the one that started this one. Described in docs/launch.md.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sauropod::cluster {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close();
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor reader, writer;
};
// No process that is started later inherits the ends. Throws base::Error.
Pipe make_pipe();

// A pseudo-terminal that passes bytes on as they are; `reader` gets what is written to `writer`.
Pipe make_terminal(int columns);
void set_columns(int terminal, int columns);

struct Command {
  std::string program;             // what is executed: a path, or a name to be found in PATH
  std::vector<std::string> words;  // argv, the program's name first
  std::vector<std::string> environment;  // NAME=value
  int input = -1, output = -1, error = -1;  // descriptors; -1: /dev/null
};

// Starts it in a process group of its own, with default signals. It becomes a child of the calling thread.
// Throws base::Error.
pid_t spawn(const Command& command);

// How a process ended.
struct Ending {
  int code = 0;
  int signal = 0;  // that ended it, or 0
  std::string cause = {};  // what is known beyond: out of memory
  bool by_launcher = false;  // the launcher had signalled it before
  bool good() const { return code == 0 && signal == 0; }
  int exit_code() const { return signal ? 128 + signal : code; }  // as shells have it
};
std::string describe(const Ending& ending);  // "exited with code 3", "was killed by SIGKILL"
std::string signal_name(int signal);         // "SIGKILL"

// The processes that end with their supervisor are started with its number in SAUROPOD_SUPERVISOR and call
// this first of all: from then on the kernel kills this process when that one ends, however it ends. Ends
// the process if the supervisor has ended already. `launch-exec PROGRAM ARGUMENT…` then becomes that program.
void follow_supervisor(int argc, char** argv);

// The variable for follow_supervisor, for children of this process.
std::string supervisor_variable();

// The environment of this process with changes: "NAME=value" sets, "NAME" removes.
std::vector<std::string> changed_environment(const std::vector<std::string>& changes);

// Makes sure that descriptors 0 to 2 are open, so that no other file gets their numbers.
void hold_standard_descriptors();

// Signals as something that can be polled: they are blocked for this thread and those it starts.
class Signals {
 public:
  explicit Signals(const std::vector<int>& signals);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int descriptor() const { return descriptor_.number(); }
  std::optional<int> next();  // one that has come; doesn't wait

 private:
  Descriptor descriptor_;
};

}  // namespace sauropod::cluster

// One rank's process, as its agent has it.
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/process.h"

namespace sauropod::cluster {

class RankProcess {
 public:
  // What the process printed: on standard error, or standard output.
  using Print = std::function<void(bool error, std::string_view bytes)>;
  // As kill(2): tests watch it.
  using Kill = std::function<int(pid_t, int)>;

  // Starts the command, its output going to pipes. With `columns`, standard error is a terminal that wide.
  // Throws base::Error.
  RankProcess(Command command, int columns, Print print, Kill kill = ::kill);

  pid_t process() const { return process_; }
  bool stopped() const { return stopped_; }
  bool signalled() const { return signalled_; }
  const std::optional<Ending>& ending() const { return ending_; }

  // Descriptors to be polled, -1 once they are closed; read() when there is something.
  int output() const { return output_.number(); }
  int error() const { return error_.number(); }
  void read(bool error);
  void resize(int columns);

  // After SIGCHLD. True when it was stopped, has gone on or has ended since. With the end of the process,
  // what it had started in its process group is killed, and the last of its output printed.
  bool look();
  // To its whole process group.
  void signal(int number);

  // "state D (uninterruptible), in nfs_wait": of a process that doesn't end.
  std::string state() const;

 private:
  Descriptor& side(bool error) { return error ? error_ : output_; }
  bool read_some(bool error);

  Print print_;
  Kill kill_;
  Descriptor output_, error_;
  pid_t process_ = 0;
  bool stopped_ = false;
  bool signalled_ = false;  // by this class
  std::optional<Ending> ending_;
};

}  // namespace sauropod::cluster

// For tests that need several ranks: runs copies of the test program itself, one process a rank, each of which runs the
// same test and, within it, the given body as its rank. Used by the tests of other rooms too.
//
//   TEST(Sum, OverRanks) {
//     comm::test::run_ranks(4, [](comm::World& world) {
//       …EXPECT_EQ(…);   // in each of the four processes
//     });
//   }
//
// In the test's own process run_ranks starts the ranks, waits for them and adds a failure for each that didn't end well,
// with its output; in a rank's process it runs the body and ends the process. What stands before it in the test runs in
// every process, what stands after it only in the test's own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/launch_environment.h"
#include "comm/store.h"
#include "comm/world.h"

extern char** environ;

namespace sauropod::comm::test {

struct RankResult {
  pid_t process = 0;
  int status = -1;     // as wait() gave it
  std::string output;  // both streams
  bool ok() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  bool killed_by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
};

struct RunOptions {
  CommunicationOptions communication = {.timeout = std::chrono::seconds(60),
                                        .startup_timeout = std::chrono::seconds(60)};
  // Other variables for a rank; a value of "" unsets.
  std::function<std::map<std::string, std::string>(int rank)> environment;
  Description description;
  bool rank_zero_serves = false;  // the store; otherwise this process does, as a launcher
  bool expect_ok = true;          // a rank that fails is a failure of the test
  std::chrono::seconds limit{120};  // then what is left is killed
  std::set<int> killed_last;        // ranks that stop: killed when the others, and `meanwhile`, have ended
  // Called here, in the test's process, once the ranks run; with their processes.
  std::function<void(const std::vector<pid_t>&)> meanwhile;
};

inline std::string test_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// How many calls of run_ranks this process has passed in this test; ranks run the body of theirs only.
inline int& calls_of(const std::string& test) {
  static std::map<std::string, int> calls;
  return calls[test];
}

inline std::string current_test() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

// What a rank's process does: meets the others and runs the body. An exception is printed and ends it with 3.
[[noreturn]] inline void run_as_rank(const RunOptions& options, const std::function<void(World&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 0;
  try {
    auto world = World::start(read_launch_environment(), options.communication, {.description = options.description});
    try {
      body(*world);
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception& error) {
      world->report_failure(error.what());
      throw;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    code = 3;
  }
  if (::testing::Test::HasFailure()) code = 1;
  std::fflush(nullptr);
  _exit(code);
}

inline std::vector<RankResult> run_ranks(int size, const std::function<void(World&)>& body, RunOptions options = {}) {
  const std::string test = current_test();
  const int call = calls_of(test)++;
  if (const std::string mine = test_variable("SAUROPOD_TEST_CALL"); !mine.empty()) {
    if (mine == std::to_string(call)) run_as_rank(options, body);
    return std::vector<RankResult>(static_cast<size_t>(size));
  }

  std::unique_ptr<StoreServer> server;
  int port;
  {
    auto any = std::make_unique<StoreServer>();
    port = any->port();
    if (!options.rank_zero_serves) server = std::move(any);
  }
  std::vector<RankResult> results(static_cast<size_t>(size));
  std::vector<int> pipes(static_cast<size_t>(size));
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    std::map<std::string, std::string> variables;
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
    for (const char* name : {"GTEST_OUTPUT", "GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS", "TEST_PREMATURE_EXIT_FILE"})
      variables.erase(name);
    variables["SAUROPOD_TEST_CALL"] = std::to_string(call);
    variables["OMP_NUM_THREADS"] = "1";
    variables["TORCH_CPP_LOG_LEVEL"] = "ERROR";
    if (options.rank_zero_serves) {
      variables["RANK"] = std::to_string(rank);
      variables["WORLD_SIZE"] = std::to_string(size);
      variables["MASTER_ADDR"] = "127.0.0.1";
      variables["MASTER_PORT"] = std::to_string(port);
    } else {
      variables["SAUROPOD_RANK"] = variables["SAUROPOD_LOCAL_RANK"] = std::to_string(rank);
      variables["SAUROPOD_WORLD_SIZE"] = variables["SAUROPOD_LOCAL_SIZE"] = std::to_string(size);
      variables["SAUROPOD_STORE"] = "127.0.0.1:" + std::to_string(port);
    }
    if (options.environment)
      for (const auto& [name, value] : options.environment(rank)) variables[name] = value;
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables)
      if (!value.empty()) entries.push_back(name + "=" + value);
    std::vector<char*> pointers;
    for (std::string& entry : entries) pointers.push_back(entry.data());
    pointers.push_back(nullptr);

    int ends[2];
    SAUROPOD_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=" + test;
    char* arguments[] = {program.data(), filter.data(), nullptr};
    pid_t process = 0;
    const int error = posix_spawn(&process, program.c_str(), &actions, nullptr, arguments, pointers.data());
    SAUROPOD_CHECK(error == 0, "rank {} can't be started: error {}", rank, error);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    pipes[rank] = ends[0];
    results[rank].process = process;
    processes.push_back(process);
  }
  std::thread meanwhile;
  std::atomic<bool> busy = static_cast<bool>(options.meanwhile);
  if (busy)
    meanwhile = std::thread([&] {
      options.meanwhile(processes);
      busy = false;
    });

  const auto end = std::chrono::steady_clock::now() + options.limit;
  bool out_of_time = false, killed = false;
  for (size_t open = pipes.size(); open > 0;) {
    std::vector<pollfd> entries;
    for (const int fd : pipes) entries.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    poll(entries.data(), entries.size(), 200);
    for (size_t rank = 0; rank < entries.size(); ++rank) {
      if (!entries[rank].revents) continue;
      char buffer[4096];
      const ssize_t n = read(pipes[rank], buffer, sizeof(buffer));
      if (n > 0) {
        results[rank].output.append(buffer, static_cast<size_t>(n));
      } else {
        close(std::exchange(pipes[rank], -1));
        --open;
      }
    }
    if (open > 0 && open == options.killed_last.size() && !busy && !std::exchange(killed, true))
      for (const int rank : options.killed_last) kill(processes[rank], SIGKILL);
    if (std::chrono::steady_clock::now() > end && !std::exchange(out_of_time, true))
      for (const pid_t process : processes) kill(process, SIGKILL);  // children of this process, not yet waited for
  }
  if (meanwhile.joinable()) meanwhile.join();
  for (int rank = 0; rank < size; ++rank) {
    waitpid(results[rank].process, &results[rank].status, 0);
    if (out_of_time || (options.expect_ok && !results[rank].ok()))
      ADD_FAILURE() << "rank " << rank << (out_of_time ? " took too long" : " failed") << ", status "
                    << results[rank].status << ":\n" << results[rank].output;
  }
  return results;
}

}  // namespace sauropod::comm::test

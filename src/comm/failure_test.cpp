// What goes wrong between ranks: every survivor gets an error, soon, that names the rank to blame.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/file.h"
#include "comm/test_support.h"
#include "comm/verdict.h"

namespace sauropod::comm {
namespace {

using namespace std::chrono_literals;
using test::RankResult;
using test::run_ranks;
using test::RunOptions;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

RunOptions short_time(bool shared_memory, std::chrono::seconds timeout = 600s) {
  RunOptions options;
  options.communication.timeout = timeout;
  options.communication.shared_memory = shared_memory;
  options.expect_ok = false;
  return options;
}

// Ten calls; before the sixth of rank 2 something happens.
void work(World& world, const std::function<void()>& happens) {
  auto all = world.make_group("all", {0, 1, 2, 3});
  at::Tensor x = at::zeros({30000});
  for (int i = 1; i <= 10; ++i) {
    if (i == 6 && world.rank() == 2) happens();
    all->all_reduce("step", x).wait();
  }
}

void expect_survivors_say(const std::vector<RankResult>& results, const std::vector<std::string>& parts) {
  for (const int rank : {0, 1, 3}) {
    EXPECT_TRUE(WIFEXITED(results[rank].status) && WEXITSTATUS(results[rank].status) == 3)
        << "rank " << rank << " status " << results[rank].status << ": " << results[rank].output;
    for (const std::string& part : parts) EXPECT_CONTAINS(results[rank].output, part);
  }
}

class Failure : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Over, Failure, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "SharedMemory" : "Gloo"; });

TEST_P(Failure, KilledRankIsNamedAtOnce) {
  const auto results = run_ranks(
      4, [](World& world) { work(world, [] { raise(SIGKILL); }); }, short_time(GetParam()));
  expect_survivors_say(results, {"rank 2 (", "has ended", "its last known call there was all-reduce 'step' #5 of group all",
                                 "for it in all-reduce 'step' #6"});
  EXPECT_TRUE(results[2].killed_by(SIGKILL));
  // The time-out of its calls is 600 s, and run_ranks gives up after 120.
}

TEST_P(Failure, StoppedRankIsNamedAfterTheTimeout) {
  RunOptions options = short_time(GetParam(), 5s);
  options.killed_last = {2};
  const auto results = run_ranks(
      4, [](World& world) { work(world, [] { raise(SIGSTOP); }); }, options);
  expect_survivors_say(results, {"rank 2 (", "is stopped or cut off: no sign of life",
                                 "its last known call there was all-reduce 'step' #5 of group all",
                                 "wait for it in all-reduce 'step' #6"});
}

TEST_P(Failure, LateRankIsNamedThoughOthersWaitForItsVictims) {
  RunOptions options = short_time(GetParam(), 4s);
  options.killed_last = {2};
  const auto results = run_ranks(
      4,
      [](World& world) {
        // 0 waits for 1, which waits for 2, which computes.
        auto left = world.rank() < 2 ? world.make_group("left", {0, 1}) : nullptr;
        auto right = world.rank() >= 1 && world.rank() <= 2 ? world.make_group("right", {1, 2}) : nullptr;
        auto all = world.make_group("all", {0, 1, 2, 3});
        all->barrier("begin").wait();
        if (world.rank() == 2) std::this_thread::sleep_for(100s);
        at::Tensor x = at::zeros({10});
        if (right) right->exchange("activation", {}, {{world.rank() == 1 ? 1 : 0, x}}).wait();
        if (left) left->all_reduce("norm", x).wait();
        all->barrier("end").wait();
      },
      options);
  for (const int rank : {0, 1, 3}) {
    EXPECT_CONTAINS(results[rank].output, "rank 2 (");
    EXPECT_CONTAINS(results[rank].output, "is late");
  }
}

// Also when the rank has dropped its groups a while before it comes to say them.
TEST_P(Failure, OwnWordsOfTheRankThatFailedReachTheOthers) {
  struct SlowToUnwind {
    ~SlowToUnwind() { std::this_thread::sleep_for(1s); }
  };
  const auto results = run_ranks(
      4,
      [](World& world) {
        SlowToUnwind slow;
        work(world, [] { base::fail("the disk of rank 2 is full"); });
      },
      short_time(GetParam()));
  expect_survivors_say(results, {"rank 2 (", "failed: the disk of rank 2 is full"});
}

TEST_P(Failure, StoresHostDiesFirst) {
  RunOptions options = short_time(GetParam());
  options.rank_zero_serves = true;
  const auto results = run_ranks(
      3,
      [](World& world) {
        auto all = world.make_group("all", {0, 1, 2});
        at::Tensor x = at::zeros({30000});
        for (int i = 0; i < 10; ++i) {
          if (i == 5 && world.rank() == 0) raise(SIGKILL);
          all->all_reduce("step", x).wait();
        }
      },
      options);
  for (const int rank : {1, 2}) EXPECT_CONTAINS(results[rank].output, "rank 0 (");
}

TEST(Start, DifferentRecipesAreNamedOnAllRanks) {
  RunOptions options = short_time(true);
  const std::string rank = test::test_variable("SAUROPOD_RANK");
  options.description = {{"build", "abc"}, {"train.steps", rank == "2" ? "200" : "100"}};
  const auto results = run_ranks(3, [](World&) { FAIL() << "started"; }, options);
  for (const RankResult& result : results) {
    EXPECT_EQ(WEXITSTATUS(result.status), 3);
    EXPECT_CONTAINS(result.output, "rank 2 (");
    EXPECT_CONTAINS(result.output, "train.steps is 200 there, and 100 on rank 0");
  }
}

TEST(Start, RankThatDoesNotComeIsNamed) {
  RunOptions options = short_time(true);
  options.communication.startup_timeout = 1s;
  options.environment = [](int) { return std::map<std::string, std::string>{{"SAUROPOD_WORLD_SIZE", "3"}}; };
  const auto results = run_ranks(2, [](World&) { FAIL() << "started"; }, options);
  for (const RankResult& result : results)
    EXPECT_CONTAINS(result.output, "1 of 3 ranks did not start within 1 s: rank 2");
}

TEST(Start, TwoProcessesOfOneRankAreRefused) {
  RunOptions options = short_time(true);
  options.communication.startup_timeout = 1s;
  options.environment = [](int) {
    return std::map<std::string, std::string>{{"SAUROPOD_RANK", "1"}, {"SAUROPOD_LOCAL_RANK", "1"}};
  };
  const auto results = run_ranks(2, [](World&) { FAIL() << "started"; }, options);
  EXPECT_CONTAINS(results[0].output + results[1].output, "two processes say that they are rank 1");
}

TEST(Start, PortInUse) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof(any);
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&any), length), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  getsockname(taken, reinterpret_cast<sockaddr*>(&any), &length);
  LaunchEnvironment environment;
  environment.size = 2;
  environment.store_host = "127.0.0.1";
  environment.store_port = ntohs(any.sin_port);
  try {
    World::start(environment, {});
    FAIL() << "started";
  } catch (const CommunicationError& error) {
    EXPECT_CONTAINS(std::string(error.what()), fmt::format("port {} of this host is in use", environment.store_port));
  }
  close(taken);
}

TEST(Start, UnreachableStore) {
  LaunchEnvironment environment;
  environment.size = 2;
  environment.rank = 1;
  environment.store_port = 9;
  CommunicationOptions options;
  options.startup_timeout = 1s;
  // Discard addresses (RFC 5737) aren't routed; a name that doesn't exist; a port on which nobody listens.
  for (const char* host : {"192.0.2.1", "no-such-host.invalid", "127.0.0.1"}) {
    environment.store_host = host;
    try {
      World::start(environment, options);
      FAIL() << "started";
    } catch (const CommunicationError& error) {
      EXPECT_CONTAINS(std::string(error.what()), fmt::format("no store answered at {}:9 within 1 s", host));
    }
  }
}

}  // namespace
}  // namespace sauropod::comm

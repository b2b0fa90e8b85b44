// The judgement over records made by hand, and the flight recorder's file.
#include "comm/verdict.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "comm/test_support.h"

namespace sauropod::comm {
namespace {

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr int64_t kSecond = 1000000000;

RankRecord rank_on(int rank, const std::string& host) {
  return {.rank = rank, .size = 4, .host = host, .time = 100 * kSecond};
}

// Adds a group in which the rank made `made` collectives; blocked in the last one for some seconds, if any.
void in_group(RankRecord& record, const std::string& name, std::vector<int> members, uint64_t made, int blocked = 0,
              const std::string& label = "sum") {
  RecordedGroup group{.name = name, .members = members, .self = 0, .collectives = made};
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i] == record.rank) group.self = static_cast<int>(i);
  if (made > 0)
    group.calls.push_back({.order = made,
                           .number = made,
                           .kind = Kind::all_reduce,
                           .label = label,
                           .issued = 1,
                           .started = 1,
                           .blocked = blocked ? record.time - blocked * kSecond : 0,
                           .finished = blocked ? 0 : record.time - kSecond});
  record.groups.push_back(std::move(group));
}

TEST(Verdict, NamesTheRankThatDidNotArrive) {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) {
    records.push_back(rank_on(rank, rank < 2 ? "a" : "b"));
    in_group(records.back(), "data", {0, 1, 2, 3}, rank == 2 ? 11 : 12, rank == 2 ? 0 : 40 + rank);
  }
  const Verdict verdict = judge(records);
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_EQ(verdict.sentence,
            "rank 2 (b) is late; its last known call there was all-reduce 'sum' #11 of group data; ranks 0, 1, 3 wait for it "
            "in all-reduce 'sum' #12 of group data for 43.0 s");
}

// 0 waits for 1 in one group, 1 for 2 in the next, 3 for all in the last.
std::vector<RankRecord> chain() {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 4; ++rank) records.push_back(rank_on(rank, "h"));
  in_group(records[0], "tensor", {0, 1}, 5, 30);
  in_group(records[1], "tensor", {0, 1}, 4);
  in_group(records[1], "pipe", {1, 2}, 8, 31);
  in_group(records[2], "pipe", {1, 2}, 7);
  in_group(records[3], "world", {0, 1, 2, 3}, 2, 50);
  for (int rank = 0; rank < 3; ++rank) in_group(records[rank], "world", {0, 1, 2, 3}, 1);
  return records;
}

TEST(Verdict, FollowsNestedGroupsToTheOneThatIsNotWaiting) {
  const Verdict verdict = judge(chain());
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_CONTAINS(verdict.sentence, "rank 2 (h) is late");
  EXPECT_CONTAINS(verdict.sentence, "ranks 1, 3 wait for it");
  EXPECT_CONTAINS(verdict.sentence, "1 other waits for these");
}

TEST(Verdict, AStoppedRankThatWaitsItselfIsNotToBlame) {
  auto records = chain();
  records[0].stopped = true;
  records[1].silent_seconds = 9;
  EXPECT_EQ(judge(records).rank, 2);
}

TEST(Verdict, TellsWhatIsWrongWithTheCulprit) {
  const auto with = [](const std::function<void(RankRecord&)>& change) {
    auto records = chain();
    change(records[2]);
    const Verdict verdict = judge(records);
    EXPECT_EQ(verdict.rank, 2);
    return verdict.sentence;
  };
  EXPECT_CONTAINS(with([](auto& r) { r.dead = true, r.end = "killed by signal 9"; }), "has ended: killed by signal 9");
  EXPECT_CONTAINS(with([](auto& r) { r.stopped = true; }), "is stopped;");
  EXPECT_CONTAINS(with([](auto& r) { r.silent_seconds = 5; }), "no sign of life for 5.0 s");
  EXPECT_CONTAINS(with([](auto& r) { r.status = Status::failed, r.failure = "disk full"; }), "failed: disk full");
  EXPECT_CONTAINS(with([](auto& r) { r.status = Status::left; }), "has left the run");
  EXPECT_CONTAINS(with([](auto& r) { r.present = false, r.groups.clear(); }), "never started");
}

TEST(Verdict, ADeadRankIsToBlameBeforeALateOne) {
  auto records = chain();
  records[3].dead = true;  // nobody waits for it
  records[3].groups.clear();
  EXPECT_EQ(judge(records).rank, 3);
}

TEST(Verdict, ADeadVictimIsNot) {
  auto records = chain();
  records[0].dead = records[1].dead = true;
  records[0].status = records[1].status = Status::gave_up;
  EXPECT_EQ(judge(records).rank, 2);
}

TEST(Verdict, AllArrivedButOneIsStopped) {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 3; ++rank) {
    records.push_back(rank_on(rank, "h"));
    in_group(records.back(), "data", {0, 1, 2}, 12, 20);
  }
  EXPECT_EQ(judge(records).rank, std::nullopt);
  EXPECT_CONTAINS(judge(records).sentence, "connection between them is slow or cut");
  records[1].stopped = true;
  EXPECT_EQ(judge(records).rank, 1);
}

TEST(Verdict, NamesCallsThatDoNotMatch) {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < 2; ++rank) {
    records.push_back(rank_on(rank, "h"));
    in_group(records.back(), "data", {0, 1}, 3, rank ? 0 : 10, rank ? "gradient" : "loss");
  }
  records[1].groups[0].calls[0].finished = 0;
  records[1].groups[0].collectives = 3;
  in_group(records[1], "other", {0, 1}, 1, 10);
  in_group(records[0], "other", {0, 1}, 0);
  EXPECT_CONTAINS(judge(records).sentence, "rank 1 (h) made all-reduce 'gradient' #3 of group data where rank 0 (h) made "
                                           "all-reduce 'loss' #3");
}

TEST(Verdict, Circle) {
  std::vector<RankRecord> records = {rank_on(0, "h"), rank_on(1, "h")};
  in_group(records[0], "a", {0, 1}, 2, 10);
  in_group(records[1], "a", {0, 1}, 1);
  in_group(records[0], "b", {0, 1}, 3);
  in_group(records[1], "b", {0, 1}, 4, 10);
  EXPECT_EQ(judge(records).rank, std::nullopt);
  EXPECT_CONTAINS(judge(records).sentence, "ranks wait for each other: rank 0 (h) for rank 1 in all-reduce 'sum' #2 of "
                                           "group a; rank 1 (h) for rank 0 in all-reduce 'sum' #4 of group b");
}

TEST(Verdict, ExchangesAreCountedByPair) {
  std::vector<RankRecord> records = {rank_on(0, "h"), rank_on(1, "h"), rank_on(2, "h")};
  const auto group = [](int self) { return RecordedGroup{.name = "pipe", .members = {0, 1, 2}, .self = self}; };
  records[0].groups = {group(0)};
  records[1].groups = {group(1)};
  records[2].groups = {group(2)};
  records[0].groups[0].received[1] = 4;
  records[0].groups[0].calls = {{.order = 9, .number = 9, .kind = Kind::exchange, .label = "gradient", .issued = 1,
                                 .started = 1, .blocked = 90 * kSecond,
                                 .transfers = {{.peer = 1, .receive = true, .number = 4}}}};
  records[1].groups[0].sent[0] = 3;
  records[1].groups[0].exchanges = 50;
  EXPECT_EQ(judge(records).rank, 1);
  records[1].groups[0].sent[0] = 4;
  EXPECT_EQ(judge(records).rank, std::nullopt);
}

TEST(Verdict, NobodyWaits) {
  EXPECT_EQ(judge({rank_on(0, "h"), rank_on(1, "h")}).sentence, "no rank waits for another");
  EXPECT_EQ(judge({}).rank, std::nullopt);
}

TEST(FlightRecorder, JsonKeepsARecord) {
  auto record = chain()[1];
  record.status = Status::failed;
  record.failure = "\"quoted\"\nand broken \xff";
  record.groups[0].members = {0, 3, 6, 9, 10, 12, 1};
  record.groups[0].sent[3] = 7;
  record.groups[0].timeout = std::chrono::milliseconds(1500);
  record.groups[0].calls[0].transfers = {{.peer = 3, .receive = false, .number = 7}};
  const std::string text = to_json(record);
  EXPECT_EQ(to_json(record_from_json(text)), text);
  EXPECT_EQ(record_from_json(text).groups[0].members, record.groups[0].members);
  EXPECT_EQ(record_from_json(text).groups[0].timeout, record.groups[0].timeout);
  EXPECT_THROW(record_from_json("{}"), base::Error);
}

// A rank in another process: 300 calls in one group, one call that never ends in another; then it stops.
TEST(FlightRecorder, FileIsReadWhileTheRankIsStoppedAndDead) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("flight.{}", getpid());
  if (test::test_variable("SAUROPOD_TEST_CALL").empty()) base::make_folders(folder);
  test::RunOptions options;
  options.expect_ok = false;
  options.killed_last = {0, 1};
  options.communication.shared_memory = false;
  options.environment = [&](int rank) {
    return std::map<std::string, std::string>{
        {"SAUROPOD_FLIGHT_RECORDER", (folder / fmt::format("{}.flight", rank)).string()}, {"SAUROPOD_HOST", "x"}};
  };
  RankRecord stopped;
  options.meanwhile = [&](const std::vector<pid_t>& processes) {
    for (const pid_t process : processes) waitid(P_PID, static_cast<id_t>(process), nullptr, WSTOPPED | WNOWAIT);
    if (std::filesystem::exists(folder / "1.flight")) stopped = FlightReader(folder / "1.flight").read();
  };
  const auto results = test::run_ranks(
      2,
      [](World& world) {
        auto all = world.make_group("all", {0, 1});
        auto pair = world.make_group("pair", {1, 0});
        at::Tensor x = at::zeros({100});
        for (int i = 0; i < 300; ++i) all->all_reduce(i % 2 ? "odd" : "even", x).wait();
        if (world.rank() == 1) {
          Handle never = pair->exchange("never", {{1, x}}, {{1, x}});
          std::thread stop([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            raise(SIGSTOP);
          });
          never.wait();
        }
        raise(SIGSTOP);
      },
      options);
  for (const auto& result : results) EXPECT_TRUE(result.killed_by(SIGKILL)) << result.output;
  const RankRecord dead = FlightReader(folder / "1.flight").read();
  std::filesystem::remove_all(folder);
  for (const RankRecord& record : {stopped, dead}) {
    EXPECT_EQ(record.rank, 1);
    EXPECT_EQ(record.size, 2);
    EXPECT_EQ(record.host, "x");
    ASSERT_EQ(record.groups.size(), 2u);
    const RecordedGroup& all = record.groups[0];
    EXPECT_EQ(all.name, "all");
    EXPECT_EQ(all.members, (std::vector<int>{0, 1}));
    EXPECT_EQ(all.collectives, 300u);
    EXPECT_EQ(all.timeout, std::chrono::seconds(60));
    ASSERT_EQ(all.calls.size(), 256u);
    EXPECT_EQ(all.calls.front().number, 45u);
    EXPECT_EQ(all.calls.back().number, 300u);
    EXPECT_EQ(all.calls.back().label, "odd");
    EXPECT_EQ(all.calls.back().bytes, 400);
    EXPECT_GT(all.calls.back().finished, all.calls.back().issued);
    const RecordedGroup& pair = record.groups[1];
    ASSERT_EQ(pair.calls.size(), 1u);
    EXPECT_EQ(pair.exchanges, 1u);
    EXPECT_EQ(pair.sent.at(1), 1u);
    EXPECT_GT(pair.calls[0].blocked, 0);
    EXPECT_EQ(pair.calls[0].finished, 0);
    ASSERT_EQ(pair.calls[0].transfers.size(), 2u);
    EXPECT_EQ(judge({record}).rank, 0);
  }
}

TEST(FlightRecorder, OtherFilesAreRefused) {
  EXPECT_THROW(FlightReader("/proc/self/exe"), base::Error);
  EXPECT_THROW(FlightReader("/no/such/file"), base::Error);
}

}  // namespace
}  // namespace sauropod::comm

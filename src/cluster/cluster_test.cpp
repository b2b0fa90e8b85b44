// The parts of the launcher that can be tried without starting ranks. What they do together is tried by
// tests/launch_test.py.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "cluster/failure.h"
#include "cluster/hosts.h"
#include "cluster/link.h"
#include "cluster/memory_kills.h"
#include "cluster/message.h"
#include "cluster/output.h"
#include "cluster/processors.h"
#include "cluster/rank_process.h"
#include "cluster/rank_records.h"

namespace sauropod::cluster {
namespace {

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

template <class F>
std::string message_of(F action) {
  try {
    action();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), base::Exit::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("cluster_test.{}", getpid());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

std::vector<std::pair<std::string, int>> pairs(const std::vector<Host>& hosts) {
  std::vector<std::pair<std::string, int>> result;
  for (const Host& host : hosts) result.emplace_back(host.name, host.slots);
  return result;
}

using Pairs = std::vector<std::pair<std::string, int>>;

TEST(Hosts, NamesAndSlots) {
  EXPECT_EQ(pairs(parse_hosts("a,b")), (Pairs{{"a", 0}, {"b", 0}}));
  EXPECT_EQ(pairs(parse_hosts("ann@10.0.0.2:8,[fe80::1]:4")), (Pairs{{"ann@10.0.0.2", 8}, {"fe80::1", 4}}));
  EXPECT_EQ(pairs(parse_hosts("fe80::1")), (Pairs{{"fe80::1", 0}}));
  const Folder folder;
  folder.write("hosts", "# two\na slots=8\n\nb:4   # old\n");
  EXPECT_EQ(pairs(read_host_file(folder.path / "hosts")), (Pairs{{"a", 8}, {"b", 4}}));
}

TEST(Hosts, Refused) {
  for (const char* text : {"", "a,", "a:0", "a:x", "a:", ":3", "[a", "[a]3", "-oProxyCommand=x"})
    EXPECT_CONTAINS(message_of([&] { parse_hosts(text); }), "NAME:SLOTS") << text;
  EXPECT_CONTAINS(message_of([] { parse_hosts("a,b,a"); }), "host a is named twice");
  EXPECT_CONTAINS(message_of([] { parse_hosts("a:2,b"); }), "some hosts have slots");
  const Folder folder;
  folder.write("hosts", "a\nb slot=3\n");
  EXPECT_CONTAINS(message_of([&] { read_host_file(folder.path / "hosts"); }), "hosts, line 2: 'slot=3'");
  folder.write("hosts", "# none\n");
  EXPECT_CONTAINS(message_of([&] { read_host_file(folder.path / "hosts"); }), "names no hosts");
}

TEST(Hosts, RanksArePlacedInBlocks) {
  using Counts = std::vector<int>;
  EXPECT_EQ(place_ranks(parse_hosts("a,b"), 5), (Counts{3, 2}));
  EXPECT_EQ(place_ranks(parse_hosts("a,b,c"), 2), (Counts{1, 1, 0}));
  EXPECT_EQ(place_ranks(parse_hosts("a:4,b:4"), 6), (Counts{4, 2}));
  EXPECT_EQ(place_ranks(parse_hosts("a:4,b:3"), 0), (Counts{4, 3}));
  EXPECT_CONTAINS(message_of([] { place_ranks(parse_hosts("a:4,b:4"), 9); }),
                  "9 ranks, and the hosts have 8 slots: a:4 b:4");
  EXPECT_CONTAINS(message_of([] { place_ranks(parse_hosts("a"), 0); }), "how many ranks?");
  EXPECT_CONTAINS(message_of([] { place_ranks(parse_hosts("a"), -1); }), "at least one");
}

TEST(Messages, CutAnywhere) {
  Pipe pipe = make_pipe();
  const std::string words = "Welcome!\n";
  const std::string bytes("a\nb\0\xff", 5);
  ASSERT_TRUE(write_all(pipe.writer.number(), words + std::string(kGreeting) + "\n"));
  ASSERT_TRUE(send(pipe.writer.number(), {{"say", "output"}, {"rank", 3}}, bytes));
  ASSERT_TRUE(send(pipe.writer.number(), {{"say", "beat"}}));
  pipe.writer.close();
  std::string all(1000, '\0');
  all.resize(static_cast<size_t>(read(pipe.reader.number(), all.data(), all.size())));
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    MessageReader reader(/*expect_greeting=*/true);
    std::vector<Message> messages;
    for (const auto& part : {all.substr(0, cut), all.substr(cut)}) {
      if (part.empty()) continue;
      Pipe again = make_pipe();
      write_all(again.writer.number(), part);
      ASSERT_TRUE(reader.read_from(again.reader.number()));
      while (auto message = reader.next()) messages.push_back(*message);
    }
    ASSERT_EQ(messages.size(), 2u) << cut;
    EXPECT_EQ(messages[0].bytes, bytes);
    EXPECT_EQ(messages[0].fields.at("rank"), 3);
    EXPECT_EQ(messages[1].fields.at("say"), "beat");
    EXPECT_EQ(reader.noise(), words);
  }
}

TEST(Messages, NoMessage) {
  Pipe pipe = make_pipe();
  write_all(pipe.writer.number(), "[1, 2]\n");
  MessageReader reader(/*expect_greeting=*/false);
  ASSERT_TRUE(reader.read_from(pipe.reader.number()));
  EXPECT_THROW(reader.next(), base::Error);
  pipe.writer.close();
  EXPECT_FALSE(reader.read_from(pipe.reader.number()));
}

TEST(Link, Quoting) {
  EXPECT_EQ(quoted("/opt/sauropod-1.0/bin"), "/opt/sauropod-1.0/bin");
  EXPECT_EQ(quoted("/it's here"), "'/it'\\''s here'");
  EXPECT_EQ(quoted(""), "''");
}

TEST(MemoryKills, ControlGroups) {
  const Folder folder;
  const auto write = [&](const std::string& name, int oom_kills) {
    folder.write(name, fmt::format("low 0\noom 9\noom_kill {}\n", oom_kills));
  };
  folder.write("proc/vmstat", "nr_free_pages 12\noom_kill 5\n");
  folder.write("proc/self/cgroup", "3:cpu,memory:/other\n0::/job/step\n");
  folder.write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/memory.events", 3);  // the step itself isn't visible
  MemoryKills kills(folder.path);
  EXPECT_EQ(kills.look(), MemoryKills::Where::nowhere);
  write("sys/fs/cgroup/job/memory.events", 4);
  EXPECT_EQ(kills.look(), MemoryKills::Where::group);
  EXPECT_EQ(kills.look(), MemoryKills::Where::nowhere);
  folder.write("proc/vmstat", "oom_kill 6\n");
  EXPECT_EQ(kills.look(), MemoryKills::Where::machine);

  folder.write("proc/self/cgroup", "4:memory:/box\n0::/\n");  // the first version's
  folder.write("sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  MemoryKills old(folder.path);
  folder.write("sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(old.look(), MemoryKills::Where::group);

  MemoryKills blind(folder.path / "nothing");
  EXPECT_EQ(blind.look(), MemoryKills::Where::nowhere);
}

TEST(Processors, CoresStayTogether) {
  const auto mine = allowed_processors();
  ASSERT_FALSE(mine.empty());
  const Folder folder;
  // Pairs of threads lie apart, as on most machines: the even ones of socket 1 come last.
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto name = fmt::format("devices/system/cpu/cpu{}/topology/", mine[i]);
    folder.write(name + "physical_package_id", i % 2 == 0 ? "1\n" : "0\n");
    folder.write(name + "core_id", "0\n");
  }
  const int parts = mine.size() > 1 ? 2 : 1;
  const auto divided = divide_processors(parts, folder.path);
  std::vector<int> all;
  for (const auto& part : divided) all.insert(all.end(), part.begin(), part.end());
  std::vector<int> expected;
  for (const size_t begin : {1, 0})
    for (size_t i = begin; i < mine.size(); i += 2) expected.push_back(mine[i]);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(static_cast<int>(divided.size()), parts);
  EXPECT_LE(divided.front().size() - divided.back().size(), 1u);
  const int too_many = static_cast<int>(mine.size()) + 1;
  EXPECT_CONTAINS(message_of([&] { divide_processors(too_many, folder.path); }),
                  fmt::format("{} ranks on this host have {}", too_many, mine.size()));
}

TEST(Output, LinesOfATerminal) {
  EXPECT_EQ(without_cursor_moves("\r\x1b[2A\x1b[J\x1b[32mgreen\x1b[0m 5%\r"), "\x1b[32mgreen\x1b[0m 5%");
  std::string shown;
  telemetry::Screen screen({.write = [&](std::string_view text) { shown += text; },
                            .columns = [] { return 60; },
                            .clock = [] { return 0.0; },
                            .terminal = true});
  Output output(2, "", screen, /*bar=*/true, /*plain_standard_output=*/false);
  output.begin(0);
  EXPECT_EQ(output.columns(), 60);
  output.add(0, true, "Training 10%");
  output.add(1, true, "half a ");
  EXPECT_EQ(shown, "Training 10%");
  output.add(1, true, "line\n");
  EXPECT_EQ(shown, "Training 10%\r\x1b[J[1] half a line\nTraining 10%");
  shown.clear();
  output.add(0, true, "\r\x1b[Ja line of the log\nTraining 20%");
  EXPECT_EQ(shown, "\r\x1b[J[0] a line of the log\nTraining 10%\r\x1b[JTraining 20%");
  shown.clear();
  output.add(0, true, "\r\x1b[JTraining 30%");
  output.add(0, false, "result\n");
  EXPECT_EQ(shown, "\r\x1b[JTraining 30%\r\x1b[J[0] result\nTraining 30%");
  output.add(1, true, "no end");
  shown.clear();
  output.finish(1);
  EXPECT_EQ(shown, "\r\x1b[J[1] no end\nTraining 30%");
  EXPECT_EQ(output.last_words(1), (std::deque<std::string>{"half a line", "no end"}));
}

// ---- processes -----------------------------------------------------------------------------------------------

Command shell(const std::string& script) {
  return {.program = "/bin/sh", .words = {"sh", "-c", script}, .environment = changed_environment({})};
}

void wait_for(RankProcess& process) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!process.ending() && std::chrono::steady_clock::now() < end) {
    process.look();
    usleep(5000);
  }
  ASSERT_TRUE(process.ending());
}

TEST(RankProcess, EndsWithWhatItStarted) {
  std::string said[2];
  RankProcess process(shell("sleep 1000 & echo $!; echo err >&2; exit 3"), 0,
                      [&](bool error, std::string_view bytes) { said[error] += bytes; });
  wait_for(process);
  EXPECT_EQ(process.ending()->code, 3);
  EXPECT_FALSE(process.ending()->by_launcher);
  EXPECT_EQ(said[1], "err\n");
  // Killed; whoever takes on orphans may not have waited for it yet.
  std::string state;
  std::ifstream stat(fmt::format("/proc/{}/stat", std::stoi(said[0])));
  std::getline(stat, state);
  EXPECT_TRUE(!stat.is_open() || state.find(") Z ") != std::string::npos || state.find(") X ") != std::string::npos)
      << state;
}

TEST(RankProcess, SignalsAndStops) {
  RankProcess process(shell("kill -STOP $$; sleep 1000"), 0, [](bool, std::string_view) {});
  while (!process.stopped()) {
    process.look();
    usleep(1000);
  }
  EXPECT_CONTAINS(process.state(), "T (stopped)");
  process.signal(SIGTERM);
  process.signal(SIGCONT);
  wait_for(process);
  EXPECT_FALSE(process.stopped());
  EXPECT_EQ(process.ending()->signal, SIGTERM);
  EXPECT_EQ(process.ending()->exit_code(), 143);
  EXPECT_TRUE(process.ending()->by_launcher);
  EXPECT_EQ(describe(*process.ending()), "was killed by SIGTERM");
}

TEST(RankProcess, Terminal) {
  std::string said;
  RankProcess process(shell("test -t 2 && ! test -t 1 && stty size <&2 >&2"), 77,
                      [&](bool error, std::string_view bytes) { if (error) said += bytes; });
  wait_for(process);
  EXPECT_EQ(process.ending()->code, 0);
  EXPECT_EQ(said, "24 77\n");
}

TEST(Process, MissingProgram) {
  Command command = shell("");
  command.program = command.words[0] = "/no/such/program";
  EXPECT_THROW(spawn(command), base::Error);
}

TEST(Process, Environment) {
  setenv("CLUSTER_TEST", "1", 1);
  const auto entries = changed_environment({"CLUSTER_TEST", "CLUSTER_OTHER=a=b", "CLUSTER_OTHER=c"});
  EXPECT_EQ(std::count_if(entries.begin(), entries.end(), [](const std::string& e) { return e.starts_with("CLUSTER_"); }),
            1);
  EXPECT_EQ(entries.back(), "CLUSTER_OTHER=c");
}

// ---- who is to blame -----------------------------------------------------------------------------------------

std::vector<RankFate> fates(int count) {
  std::vector<RankFate> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back({.host = "h", .process = 100 + rank});
  return ranks;
}

void end(RankFate& fate, int order, Ending ending) {
  fate.ending = std::move(ending);
  fate.order = order;
}

// Three ranks in one group; rank 1 made one call less than the others, who wait for it.
std::vector<comm::RankRecord> records() {
  std::vector<comm::RankRecord> result;
  const int64_t second = 1000000000;
  for (int rank = 0; rank < 3; ++rank) {
    const uint64_t made = rank == 1 ? 4 : 5;
    comm::RecordedGroup group{.name = "data", .members = {0, 1, 2}, .self = rank, .collectives = made};
    comm::RecordedCall call{.order = made, .number = made, .kind = comm::Kind::all_reduce, .label = "sum"};
    call.issued = call.started = second;
    if (rank == 1) call.finished = 2 * second;
    else call.blocked = 60 * second;
    group.calls.push_back(call);
    comm::RankRecord record{.rank = rank, .size = 3, .host = "h", .time = 100 * second};
    record.groups.push_back(group);
    result.push_back(record);
  }
  return result;
}

TEST(Blame, FirstThatDiedWithoutRecords) {
  auto ranks = fates(3);
  end(ranks[2], 1, {.code = 0});
  end(ranks[1], 2, {.code = 3});
  end(ranks[0], 3, {.code = 1});
  const Blame blame = find_blame(ranks, {});
  EXPECT_EQ(blame.rank, 1);
  EXPECT_EQ(exit_code(ranks, blame), 3);
  EXPECT_EQ(report(ranks, blame, {"no more disk"}),
            "rank 1 (h, process 101) exited with code 3\n  its last words:\n    no more disk\n"
            "  rank 0: exited with code 1\n  rank 2: exited with code 0");
}

TEST(Blame, NotTheVictimThatDiedFirst) {
  auto ranks = fates(3);
  auto list = records();
  for (const int victim : {0, 2}) {
    end(ranks[victim], 1 + victim, {.code = 1});
    list[victim].status = comm::Status::gave_up;
    list[victim].dead = true;
  }
  list[1].stopped = true;
  Blame blame = find_blame(ranks, list);
  EXPECT_EQ(blame.rank, 1);
  EXPECT_CONTAINS(blame.sentence, "rank 1 (h) is stopped");
  EXPECT_EQ(headline(ranks, blame), "rank 1 (h, process 101) holds up the others");
  end(ranks[1], 9, {.signal = SIGKILL, .by_launcher = true});
  EXPECT_EQ(exit_code(ranks, blame), 1);  // the first victim's: its own says nothing
  const std::string text = report(ranks, blame, {});
  EXPECT_CONTAINS(text, "rank 1 (h, process 101) holds up the others; it was ended by the launcher (SIGKILL)");
  EXPECT_CONTAINS(text, "ranks 0, 2: exited with code 1");
  EXPECT_CONTAINS(text, "it said nothing on standard error");

  // The one to blame dies last, of its own error.
  list[1].stopped = false;
  list[1].status = comm::Status::failed;
  list[1].failure = "the disk is full";
  end(ranks[1], 9, {.code = 7, .by_launcher = true});
  blame = find_blame(ranks, list);
  EXPECT_EQ(blame.rank, 1);
  EXPECT_CONTAINS(blame.sentence, "failed: the disk is full");
  EXPECT_EQ(exit_code(ranks, blame), 7);
}

TEST(Blame, AmongDeadRanksTheFirst) {
  auto ranks = fates(3);
  auto list = records();
  end(ranks[2], 1, {.signal = SIGSEGV});
  end(ranks[1], 2, {.code = 1});
  list[1].dead = list[2].dead = true;
  const Blame blame = find_blame(ranks, list);
  EXPECT_EQ(blame.rank, 2);
  EXPECT_EQ(exit_code(ranks, blame), 128 + SIGSEGV);
  EXPECT_CONTAINS(headline(ranks, blame), "was killed by SIGSEGV");
}

TEST(Blame, VictimsOfWhoeverIsUnknown) {
  auto ranks = fates(2);
  std::vector<comm::RankRecord> list = {{.rank = 0, .size = 2}, {.rank = 1, .size = 2}};
  for (int rank = 0; rank < 2; ++rank) {
    list[rank].status = comm::Status::gave_up;
    list[rank].failure = "the connection is cut";
    list[rank].dead = true;
    end(ranks[rank], 2 - rank, {.code = 1});
  }
  const Blame blame = find_blame(ranks, list);
  EXPECT_EQ(blame.rank, 1);
  EXPECT_EQ(blame.sentence, "the connection is cut");
}

TEST(Blame, WhomTheVictimsWaitedForBefore) {
  auto ranks = fates(2);
  std::vector<comm::RankRecord> list = {{.rank = 0, .size = 2}, {.rank = 1, .size = 2}};
  list[0].status = comm::Status::gave_up;
  list[0].dead = true;
  end(ranks[0], 1, {.code = 1});
  const Blame before{.rank = 1, .sentence = "rank 1 is stopped"};
  EXPECT_EQ(find_blame(ranks, list, before).rank, 1);
  EXPECT_EQ(find_blame(ranks, list, before).sentence, "rank 1 is stopped");
  // Rank 1 was continued, and waits for the one that has given up on it.
  list[1].groups = {{.name = "all", .members = {0, 1}, .self = 1, .collectives = 6}};
  list[1].groups[0].calls = {{.order = 6, .number = 6, .blocked = 1}};
  EXPECT_EQ(find_blame(ranks, list).rank, 0);
  EXPECT_EQ(find_blame(ranks, list, before).rank, 1);
  // What has died by itself since explains more.
  list[0].status = comm::Status::running;
  EXPECT_EQ(find_blame(ranks, list, before).rank, 0);
}

TEST(Blame, LostHostAndUnkillable) {
  auto ranks = fates(5);
  ranks[3].host_lost = ranks[4].host_lost = true;
  ranks[3].host = ranks[4].host = "far";
  ranks[0].unkillable = "state D (disk sleep)";
  end(ranks[1], 1, {.signal = SIGTERM, .by_launcher = true});
  end(ranks[2], 2, {.signal = SIGTERM, .by_launcher = true});
  const Blame blame = find_blame(ranks, {});
  EXPECT_EQ(blame.rank, 3);
  EXPECT_EQ(exit_code(ranks, blame), 1);
  const std::string text = report(ranks, blame, {});
  EXPECT_CONTAINS(text, "host far is lost, with rank 3");
  EXPECT_CONTAINS(text, "rank 0: does not end, even by SIGKILL: state D");
  EXPECT_CONTAINS(text, "ranks 1, 2: was ended by the launcher (SIGTERM)");
  EXPECT_CONTAINS(text, "rank 4: was on a host that is lost");
}

TEST(Records, WhatNearsItsTimeout) {
  auto list = records();
  const int64_t now = comm::unix_nanoseconds();
  auto& group = list[0].groups[0];
  group.timeout = std::chrono::seconds(300);
  group.calls[0].blocked = now - 150'000'000'000;
  const Waiting waiting = longest_wait(list[0]);
  EXPECT_NEAR(waiting.fraction(), 0.5, 0.05);
  EXPECT_EQ(waiting.timeout, 300);
  group.calls[0].finished = now;
  EXPECT_EQ(longest_wait(list[0]).fraction(), 0);
  group.calls[0].finished = 0;
  list[0].status = comm::Status::gave_up;
  EXPECT_EQ(longest_wait(list[0]).fraction(), 0);
}

TEST(Records, ShortenedKeepUnfinishedCalls) {
  comm::RankRecord record;
  comm::RecordedGroup group;
  for (uint64_t order = 1; order <= 10; ++order)
    group.calls.push_back({.order = order, .finished = order == 2 ? 0 : 1});
  record.groups.push_back(group);
  shorten(record);
  std::vector<uint64_t> orders;
  for (const auto& call : record.groups[0].calls) orders.push_back(call.order);
  EXPECT_EQ(orders, (std::vector<uint64_t>{2, 7, 8, 9, 10}));
}

TEST(Records, FolderIsPrivateAndRemoved) {
  std::filesystem::path folder;
  {
    RankRecords records;
    folder = std::filesystem::path(records.path(0)).parent_path();
    const RankRecords others;  // leaves alone what is in use
    EXPECT_TRUE(std::filesystem::exists(folder));
    EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);
    EXPECT_FALSE(records.read(0));
    comm::FlightRecorder::make(records.path(0), 0, 2, "h")->set_status(comm::Status::failed, "why");
    ASSERT_TRUE(records.read(0));
    EXPECT_EQ(records.read(0)->failure, "why");
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
  // What an agent that was killed has left behind.
  const auto left = folder.parent_path() / fmt::format("sauropod-flight-test{}", getpid());
  std::filesystem::create_directory(left);
  std::ofstream(left / "0.flight") << "x";
  const RankRecords next;
  EXPECT_FALSE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace sauropod::cluster

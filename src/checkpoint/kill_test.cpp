// A process that is killed while it writes checkpoints: whatever the moment, an intact one is found.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "checkpoint/reader.h"
#include "checkpoint/test_layouts.h"
#include "checkpoint/test_peers.h"
#include "checkpoint/test_support.h"
#include "checkpoint/writer.h"
#include "storage/fault_store.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {
namespace {

constexpr Retention keep_two{.keep_last = 2};

// A snapshot whose content is named in its training state, so that any intact one can be judged.
Snapshot snapshot_of(int64_t step, int64_t content) {
  Snapshot snapshot = make_snapshot(content);
  snapshot.step = step;
  return snapshot;
}

void expect_whole(const Reader& reader) {
  const int64_t content = reader.manifest().training.at("step");
  for (const char* kind : {"master", "moment1", "moment2"})
    for (const TestTensor& tensor : test_tensors()) {
      std::vector<float> values(static_cast<size_t>(size_of(tensor.shape)));
      reader.read(tensor.parameter, kind, "F32", Dimensions(tensor.shape.size(), 0), tensor.shape,
                  values.data());
      ASSERT_EQ(values, tensor_of(tensor.parameter, kind, content, size_of(tensor.shape)));
    }
}

// Writes until it is killed. Says each committed content through the pipe.
[[noreturn]] void write_for_ever(storage::ObjectStore& store, int64_t step, int64_t content,
                                 bool same_step, int pipe) {
  Writer writer(store, keep_two, {.threads = 2, .box_bytes = 256, .file_bytes = 512});
  while (true) {
    ++content;
    if (!same_step) step = content;
    if (content % 2 == 0) {
      writer.write(snapshot_of(step, content));
    } else {
      writer.write_in_background(snapshot_of(step, content));
      writer.wait();
    }
    if (::write(pipe, &content, sizeof(content)) != sizeof(content)) ::_exit(1);
  }
}

TEST(Kill, AnIntactCheckpointIsFoundAfterEveryKill) {
  const TemporaryFolder folder;
  storage::LocalStore store(folder.path());
  Writer(store, keep_two).write(make_snapshot(1));
  const uint64_t key = base::random_key(1, "kill");
  int64_t content = 1, interrupted = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const int64_t step = Reader::newest_intact(store)->manifest().step;
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      write_for_ever(store, step, content, round % 3 == 2, ends[1]);
    }
    ::close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(base::random_bits(key, round) % 60'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    int64_t reported = content;
    while (::read(ends[0], &reported, sizeof(reported)) == sizeof(reported)) {
    }
    ::close(ends[0]);

    std::vector<std::string> complaints;
    const auto reader = Reader::newest_intact(store, &complaints);
    ASSERT_TRUE(reader) << "round " << round;
    EXPECT_TRUE(complaints.empty()) << complaints.front();
    expect_whole(*reader);
    const int64_t found = reader->manifest().training.at("step");
    EXPECT_GE(found, reported) << "a checkpoint that was reported written is lost";
    EXPECT_LE(found, reported + 1);
    bool leftovers = false;
    for (const Listed& listed : list_steps(store)) leftovers |= !listed.committed();
    interrupted += leftovers;
    content = found;
  }
  EXPECT_GT(content, 1);
  Writer(store, keep_two).write(snapshot_of(content + 1, content + 1));
  const std::vector<Listed> steps = list_steps(store);
  EXPECT_EQ(steps.size(), 2U);
  for (const Listed& listed : steps) EXPECT_TRUE(listed.committed());
  RecordProperty("interrupted_before_commit", static_cast<int>(interrupted));
}

// The same without chance: killed at each operation of one write in turn.
TEST(Kill, AtEveryOperationOfAWrite) {
  const TemporaryFolder two;
  {
    storage::LocalStore store(two.path());
    Writer(store, keep_two).write(make_snapshot(1));
    Writer(store, keep_two).write(make_snapshot(2));
  }
  int64_t killed = 0;
  for (uint64_t nth = 1;; ++nth) {
    const TemporaryFolder folder;
    std::filesystem::copy(two.path(), folder.path(), std::filesystem::copy_options::recursive);
    storage::LocalStore local(folder.path());
    const pid_t child = ::fork();
    if (child == 0) {
      storage::FaultStore faults(local);
      faults.add({.nth = nth, .effect = storage::Fault::Effect::kill});
      Writer(faults, keep_two, {.threads = 1, .box_bytes = 1024, .file_bytes = 2048})
          .write(make_snapshot(3));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    std::vector<std::string> complaints;
    const auto reader = Reader::newest_intact(local, &complaints);
    ASSERT_TRUE(reader) << "killed at operation " << nth;
    EXPECT_TRUE(complaints.empty()) << complaints.front();
    expect_whole(*reader);
    if (!WIFSIGNALED(status)) {
      ASSERT_EQ(status, 0);
      EXPECT_EQ(reader->manifest().step, 3);
      break;
    }
    ++killed;
    Writer(local, keep_two).write(make_snapshot(4));
    const std::vector<Listed> steps = list_steps(local);
    ASSERT_EQ(steps.size(), 2U) << "killed at operation " << nth;
    EXPECT_EQ(steps.back().step, 4);
    EXPECT_TRUE(steps.front().committed());
  }
  EXPECT_GT(killed, 20);
}

// Processes as the ranks of one run. Each ends by itself when it misses another one.
std::vector<pid_t> fork_ranks(const Layout& layout,
                              const std::function<void(Peers&, const RankLayout&)>& work) {
  const Wires wires(layout.ranks());
  std::vector<pid_t> children;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      wires.close_all_but(rank);
      try {
        SocketPeers peers(wires, rank, layout.ranks());
        work(peers, RankLayout(layout, rank));
      } catch (const base::Error&) {
        ::_exit(1);
      } catch (const std::exception&) {
        ::_exit(2);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  wires.close_all_but(-1);
  return children;
}

std::vector<int> wait_for(const std::vector<pid_t>& children) {
  std::vector<int> states;
  for (const pid_t child : children) EXPECT_EQ(::waitpid(child, &states.emplace_back(), 0), child);
  return states;
}

void expect_whole_layout(const Reader& reader) {
  const int64_t content = reader.manifest().training.at("step");
  const RankLayout whole(layouts()[0], 0);
  for (const char* kind : test_kinds()) {
    std::vector<float> values(static_cast<size_t>(whole.range().size()));
    read_range(reader, kind, "F32", whole.entries(), whole.range(), values.data());
    ASSERT_EQ(values, whole.content(kind, content));
  }
}

TEST(Kill, AnyRankAtAnyMoment) {
  const TemporaryFolder folder;
  storage::LocalStore store(folder.path());
  const uint64_t key = base::random_key(2, "kill ranks");
  int64_t committed = 0, left = 0;
  for (uint64_t round = 0; round < 24; ++round) {
    const Layout& layout = layouts()[round % 2 == 0 ? 3 : 4];  // four replicas, flat thirds
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const std::vector<pid_t> children =
        fork_ranks(layout, [&](Peers& peers, const RankLayout& held) {
          Writer writer(store, keep_two, {.threads = 2, .box_bytes = 256, .file_bytes = 512},
                        &peers);
          for (int64_t step = committed + 1;; ++step) {
            if (step % 2 == 0) {
              writer.write(held.snapshot(step));
            } else {
              writer.write_in_background(held.snapshot(step));
              while (!writer.poll()) std::this_thread::yield();
            }
            if (peers.rank() == 0 && ::write(ends[1], &step, sizeof(step)) != sizeof(step))
              ::_exit(3);
          }
        });
    ::close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(base::random_bits(key, 2 * round) % 60'000));
    const size_t victim = base::random_bits(key, 2 * round + 1) % children.size();
    ::kill(children[victim], SIGKILL);
    const std::vector<int> states = wait_for(children);
    for (size_t rank = 0; rank < states.size(); ++rank) {
      EXPECT_EQ(WIFSIGNALED(states[rank]), rank == victim) << rank;
      if (rank != victim) {
        EXPECT_EQ(WEXITSTATUS(states[rank]), 1) << rank;
      }
    }
    int64_t reported = committed;
    while (::read(ends[0], &reported, sizeof(reported)) == sizeof(reported)) {
    }
    ::close(ends[0]);

    std::vector<std::string> complaints;
    const auto reader = Reader::newest_intact(store, &complaints);
    EXPECT_TRUE(complaints.empty()) << complaints.front();
    const int64_t found = reader ? reader->manifest().step : 0;
    EXPECT_GE(found, reported) << "a checkpoint that was reported written is lost";
    EXPECT_LE(found, reported + 1);
    if (reader) expect_whole_layout(*reader);
    for (const Listed& listed : list_steps(store)) left += listed.committed() ? 0 : 1;
    committed = found;
  }
  EXPECT_GT(committed, 0);
  RecordProperty("interrupted_before_commit", static_cast<int>(left));
}

// The same without chance: one of two ranks is killed at each of its operations in turn.
TEST(Kill, ARankAtEveryOperationOfAWrite) {
  const Layout& layout = layouts()[1];
  ASSERT_EQ(layout.ranks(), 2);
  const auto write = [&](storage::ObjectStore& store, int64_t step, int victim, uint64_t nth) {
    return wait_for(fork_ranks(layout, [&](Peers& peers, const RankLayout& held) {
      storage::FaultStore faults(store);
      if (peers.rank() == victim)
        faults.add({.nth = nth, .effect = storage::Fault::Effect::kill});
      Writer(faults, keep_two, {.threads = 1, .box_bytes = 1024, .file_bytes = 2048}, &peers)
          .write(held.snapshot(step));
    }));
  };
  const TemporaryFolder two;
  {
    storage::LocalStore store(two.path());
    write(store, 1, -1, 0);
    write(store, 2, -1, 0);
  }
  for (const int victim : {0, 1}) {
    int64_t killed = 0;
    for (uint64_t nth = 1;; ++nth) {
      const TemporaryFolder folder;
      std::filesystem::copy(two.path(), folder.path(), std::filesystem::copy_options::recursive);
      storage::LocalStore store(folder.path());
      const std::vector<int> states = write(store, 3, victim, nth);
      const auto reader = Reader::newest_intact(store);
      ASSERT_TRUE(reader);
      expect_whole_layout(*reader);
      if (!WIFSIGNALED(states[static_cast<size_t>(victim)])) {
        EXPECT_EQ(states, (std::vector<int>{0, 0}));
        EXPECT_EQ(reader->manifest().step, 3);
        break;
      }
      ++killed;
      if (victim == 1) {
        EXPECT_EQ(reader->manifest().step, 2) << "operation " << nth;
      }
      EXPECT_EQ(write(store, 4, -1, 0), (std::vector<int>{0, 0}));
      const std::vector<Listed> steps = list_steps(store);
      ASSERT_EQ(steps.size(), 2U) << "killed at operation " << nth;
      EXPECT_EQ(steps.back().step, 4);
      EXPECT_TRUE(steps.front().committed());
    }
    EXPECT_GT(killed, victim == 0 ? 20 : 10);
  }
}

}  // namespace
}  // namespace sauropod::checkpoint

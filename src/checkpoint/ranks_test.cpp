// Checkpoints of many ranks: layouts, failures, what is cleaned up, which one all resume from.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <mutex>
#include <set>

#include "base/file.h"
#include "checkpoint/inspect.h"
#include "checkpoint/newest.h"
#include "checkpoint/test_layouts.h"
#include "checkpoint/test_peers.h"
#include "checkpoint/writer.h"
#include "storage/fault_store.h"
#include "storage/local_store.h"

namespace sauropod::checkpoint {
namespace {

namespace fs = std::filesystem;
using storage::Cause;
using storage::Fault;
using storage::Operation;

constexpr WriterOptions small{.threads = 2, .box_bytes = 256, .file_bytes = 1024};

// Passes everything on, and calls hooks around commits.
class HookStore final : public storage::ObjectStore {
 public:
  explicit HookStore(storage::ObjectStore& store) : store_(store) {}
  std::function<void(const std::string& key)> before_commit, after_commit, before_size;

  std::unique_ptr<storage::Upload> create(const std::string& key, uint64_t size) override {
    return std::make_unique<HookUpload>(*this, key, store_.create(key, size));
  }
  void read(const std::string& key, uint64_t offset, size_t size, void* out) const override {
    store_.read(key, offset, size, out);
  }
  std::vector<storage::ObjectInfo> list(const std::string& prefix) const override {
    return store_.list(prefix);
  }
  std::optional<uint64_t> size(const std::string& key) const override {
    if (before_size) before_size(key);
    return store_.size(key);
  }
  void remove(const std::string& key) override { store_.remove(key); }
  void remove_unfinished(const std::string& prefix) override { store_.remove_unfinished(prefix); }
  std::string describe(const std::string& key) const override { return store_.describe(key); }

 private:
  class HookUpload final : public storage::Upload {
   public:
    HookUpload(const HookStore& hooks, std::string key, std::unique_ptr<storage::Upload> upload)
        : hooks_(hooks), key_(std::move(key)), upload_(std::move(upload)) {}
    void write(const void* data, size_t size) override { upload_->write(data, size); }
    void commit() override {
      if (hooks_.before_commit) hooks_.before_commit(key_);
      upload_->commit();
      if (hooks_.after_commit) hooks_.after_commit(key_);
    }

   private:
    const HookStore& hooks_;
    const std::string key_;
    const std::unique_ptr<storage::Upload> upload_;
  };
  storage::ObjectStore& store_;
};

class RanksTest : public ::testing::Test {
 protected:
  // Writes one checkpoint in a layout; each rank through a store of its own.
  void save(const Layout& layout, int64_t step) {
    const auto errors = run_ranks(layout.ranks(), [&](Peers& peers) {
      storage::LocalStore store(folder_.path());
      Writer(store, {}, small, &peers).write(RankLayout(layout, peers.rank()).snapshot(step));
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "") << layout.name;
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      if (!entry.is_directory()) names.insert(fs::relative(entry, folder_.path()).string());
    return names;
  }

  TemporaryFolder folder_;
  storage::LocalStore store_{folder_.path()};
};

void expect_content(const Reader& reader, const Layout& layout, int rank, int64_t step) {
  const RankLayout held(layout, rank);
  for (const char* kind : test_kinds()) {
    std::vector<float> values(static_cast<size_t>(held.range().size()), -1);
    read_range(reader, kind, "F32", held.entries(), held.range(), values.data());
    EXPECT_EQ(values, held.content(kind, step)) << kind << ", rank " << rank << " of " << layout.name;
  }
}

TEST_F(RanksTest, AnyLayoutReadsAnyLayout) {
  std::set<std::string> contents, tensors;
  for (const Layout& written : layouts()) {
    save(written, 7);
    const Reader reader(store_, 7, Check::hashes);
    EXPECT_EQ(reader.manifest().training.at("tokens"), 7000);
    EXPECT_EQ(reader.manifest().find("embedding", "master")->shape, (Dimensions{50, 8}));
    EXPECT_EQ(reader.tokenizer_file(), make_snapshot(7).tokenizer_file);
    for (const Layout& wanted : layouts())
      for (int rank = 0; rank < wanted.ranks(); ++rank) {
        SCOPED_TRACE(written.name);
        expect_content(reader, wanted, rank, 7);
      }
    std::vector<std::string> hashes;
    for (const StoredTensor& tensor : reader.manifest().tensors)
      hashes.push_back(content_hash(reader, tensor));
    tensors.insert(hashes.begin(), hashes.end());
    contents.insert(content_hash(reader.manifest(), hashes));
    std::set<std::string> ranks;
    for (const DataFile& file : reader.manifest().files) ranks.insert(file.name.substr(13, 7));
    EXPECT_EQ(ranks.size(), static_cast<size_t>(written.ranks())) << written.name;
    // The step was written again and again: nothing but the last one is left.
    EXPECT_EQ(names().size(), reader.manifest().files.size() + 2) << written.name;
  }
  EXPECT_EQ(contents.size(), 1U) << "the content depends on the layout";
  EXPECT_EQ(tensors.size(), layout_tensors().size() * test_kinds().size());
}

// Replicas share the work: no rank writes more than its part of what it holds.
TEST_F(RanksTest, ReplicasShareTheWriting) {
  const Layout layout = layouts()[3];
  ASSERT_EQ(layout.name, "4 replicas");
  save(layout, 1);
  std::map<std::string, uint64_t> bytes;
  const Reader reader(store_, 1);
  for (const StoredTensor& tensor : reader.manifest().tensors)
    for (const StoredBox& box : tensor.boxes)
      bytes[reader.manifest().files[box.file].name.substr(13, 7)] += box.end - box.begin;
  const auto [least, most] =
      std::minmax_element(bytes.begin(), bytes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const size_t tensors = layout_tensors().size() * test_kinds().size();
  EXPECT_LE(most->second - least->second, sizeof(float) * tensors);
}

TEST_F(RanksTest, ARangeOfAnotherModelIsRefused) {
  save(layouts()[0], 1);
  const Reader reader(store_, 1);
  float out[1000];
  const FlatEntry good{"bias", {{17}, {{0}, {17}}}, 0};
  read_range(reader, "master", "F32", {good}, {0, 17}, out);
  for (const FlatEntry& bad : {FlatEntry{"bias", {{18}, {{0}, {18}}}, 0},
                               FlatEntry{"none", {{17}, {{0}, {17}}}, 0}})
    EXPECT_THROW(read_range(reader, "master", "F32", {bad}, {0, 17}, out), base::Error);
}

// The disk of one rank fills up at each of its operations in turn: every rank learns which rank failed
// and why, nothing of the attempt is left, the older checkpoint is intact, and the next write succeeds.
class OneRankFails : public RanksTest, public ::testing::WithParamInterface<int> {};

TEST_P(OneRankFails, AllLearnWhichAndWhy) {
  const int failing = GetParam();
  const Layout& layout = layouts()[4];
  ASSERT_EQ(layout.ranks(), 3);
  save(layout, 1);
  const std::set<std::string> before = names();
  int64_t step = 1;
  for (uint64_t nth = 1;; ++nth) {
    ++step;
    std::atomic<bool> failed = false;
    std::vector<std::string> caught(3);
    const auto errors = run_ranks(3, [&](Peers& peers) {
      storage::FaultStore faults(store_);
      Writer writer(faults, {.keep_last = 0}, {.threads = 1, .box_bytes = 256, .file_bytes = 1024},
                    &peers);
      if (peers.rank() == failing) faults.add({.nth = nth, .cause = Cause::no_space});
      const RankLayout held(layout, peers.rank());
      try {
        writer.write(held.snapshot(step));
      } catch (const base::Error& error) {
        caught[static_cast<size_t>(peers.rank())] = error.what();
        failed = true;
      }
      peers.gather("");
      peers.broadcast("");
      if (!failed) return;
      if (peers.rank() == 0) {
        EXPECT_EQ(Reader::newest_intact(store_)->manifest().step, 1) << "operation " << nth;
        EXPECT_EQ(names(), before) << "operation " << nth;
      }
      peers.broadcast("");
      writer.write(held.snapshot(step + 1));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    if (!failed) break;
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& text = caught[static_cast<size_t>(rank)];
      EXPECT_NE(text.find("full"), std::string::npos) << rank << ": " << text;
      if (rank != failing) {
        EXPECT_NE(text.find(fmt::format("rank {}: ", failing)), std::string::npos) << text;
      }
    }
    ++step;
    const Reader reader(store_, step, Check::hashes);
    for (int rank = 0; rank < 3; ++rank) expect_content(reader, layout, rank, step);
    fs::remove_all(folder_.path() / prefix_of_step(step));
    ASSERT_LT(nth, 200U);
  }
  EXPECT_GT(step, 20) << "few operations were struck";
}

// Rank 0 also lists, puts the tokenizer and the manifest, and looks at the files of others.
INSTANTIATE_TEST_SUITE_P(Rank, OneRankFails, ::testing::Values(0, 2));

TEST_F(RanksTest, AFailureStopsTheOthers) {
  const Layout& layout = layouts()[3];
  std::vector<uint64_t> writes(4);
  const auto errors = run_ranks(4, [&](Peers& peers) {
    storage::FaultStore faults(store_);
    if (peers.rank() == 2) {
      faults.add({.operation = Operation::create, .cause = Cause::no_space});
    } else {
      faults.add({.operation = Operation::write, .repeat = true, .effect = Fault::Effect::delay,
                  .delay = std::chrono::milliseconds(20)});
    }
    Writer writer(faults, {}, {.threads = 1, .box_bytes = 16, .file_bytes = 1 << 20}, &peers);
    writer.write_in_background(RankLayout(layout, peers.rank()).snapshot(1));
    EXPECT_THROW(
        {
          while (!writer.poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        base::Error);
    EXPECT_TRUE(writer.poll());
    writes[static_cast<size_t>(peers.rank())] = faults.count(Operation::write);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  // Of the more than a hundred that would have been needed; each took 20 ms, and a poll 1.
  for (const int rank : {0, 1, 3}) EXPECT_LT(writes[static_cast<size_t>(rank)], 60U);
  EXPECT_TRUE(names().empty());
}

// A training loop that exchanges things of its own between the polls, while one rank's disk is stuck
// until the loop has come to a certain step.
TEST_F(RanksTest, WritesWhileTheLoopGoesOn) {
  constexpr int64_t unstuck = 20;
  const Layout& layout = layouts()[1];
  std::mutex mutex;
  std::set<int64_t> committed_at;
  const auto errors = run_ranks(2, [&](Peers& peers) {
    std::promise<void> promise;
    const std::shared_future<void> come = promise.get_future().share();
    std::atomic<bool> in_vain = false;
    HookStore store(store_);
    if (peers.rank() == 1)
      store.before_commit = [&](const std::string&) {
        if (!in_vain && come.wait_for(std::chrono::seconds(20)) == std::future_status::timeout)
          in_vain = true;
      };
    Writer writer(store, {}, small, &peers);
    EXPECT_TRUE(writer.poll());
    bool released = false;
    Snapshot snapshot = RankLayout(layout, peers.rank()).snapshot(3);
    snapshot.owner = std::shared_ptr<const void>(
        &released, [&released, keep = snapshot.owner](const void*) { released = true; });
    writer.write_in_background(std::move(snapshot));
    for (int64_t step = 4;; ++step) {
      const auto all = peers.gather(std::to_string(step));
      EXPECT_EQ(peers.broadcast(all.empty() ? "" : all[1]), std::to_string(step));
      if (step == unstuck) promise.set_value();
      if (!writer.poll()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      EXPECT_TRUE(released);
      EXPECT_EQ(Reader(store_, 3, Check::hashes).manifest().step, 3);
      const std::lock_guard lock(mutex);
      committed_at.insert(step);
      break;
    }
    // The next one is not polled: the write after it waits.
    writer.write_in_background(RankLayout(layout, peers.rank()).snapshot(5));
    writer.write(RankLayout(layout, peers.rank()).snapshot(6));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  ASSERT_EQ(committed_at.size(), 1U) << "ranks differ on when it was written";
  EXPECT_GT(*committed_at.begin(), unstuck) << "the loop waited for the disk";
  for (const int64_t step : {3, 5, 6})
    expect_content(Reader(store_, step, Check::hashes), layouts()[4], 1, step);
}

// Putting the manifest reports an error although it is there, or nobody can tell: no rank may remove
// its files.
TEST_F(RanksTest, AnErrorAfterTheCommitRemovesNothing) {
  const Layout& layout = layouts()[1];
  for (const bool unreachable : {false, true}) {
    const int64_t step = unreachable ? 2 : 1;
    const auto errors = run_ranks(2, [&](Peers& peers) {
      HookStore store(store_);
      const auto break_off = [](const std::string& key) {
        if (key.ends_with(manifest_name))
          throw storage::StoreError(Cause::unavailable, "no answer");
      };
      store.after_commit = break_off;
      if (unreachable) store.before_size = break_off;
      Writer writer(store, {}, small, &peers);
      EXPECT_THROW(writer.write(RankLayout(layout, peers.rank()).snapshot(step)), base::Error);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    const Reader reader(store_, step, Check::hashes);
    for (int rank = 0; rank < 2; ++rank) expect_content(reader, layout, rank, step);
  }
}

TEST_F(RanksTest, PartsThatDoNotMakeAWholeAreRefused) {
  const Layout& layout = layouts()[1];
  save(layout, 1);
  const std::set<std::string> before = names();
  const auto refused = [&](const std::function<void(Snapshot&)>& alter) {
    const auto errors = run_ranks(2, [&](Peers& peers) {
      Snapshot snapshot = RankLayout(layout, peers.rank()).snapshot(2);
      if (peers.rank() == 1) alter(snapshot);
      Writer(store_, {}, small, &peers).write(snapshot);
    });
    EXPECT_NE(errors[0], "");
    EXPECT_NE(errors[1], "");
    EXPECT_EQ(names(), before);
    return errors[1];
  };
  EXPECT_NE(refused([](Snapshot& s) { s.boxes.pop_back(); }).find("cover"), std::string::npos);
  EXPECT_NE(refused([](Snapshot& s) {
              for (Box box : s.boxes)
                if (box.parameter == "weight") {
                  box.offset = {0, 0};  // a row of rank 0's
                  box.shape = {1, 12};
                  return s.boxes.push_back(box);
                }
            }).find("overlap"),
            std::string::npos);
  EXPECT_NE(refused([](Snapshot& s) {
              for (Box& box : s.boxes)
                if (box.parameter == "weight") box.full_shape = {25, 12};
            }).find("rank 1: master of weight is F32 [25, 12], elsewhere F32 [24, 12]"),
            std::string::npos);
  EXPECT_NE(refused([](Snapshot& s) { s.step = 3; }).find("rank 1 writes step 3"),
            std::string::npos);
  EXPECT_NE(refused([](Snapshot& s) { s.boxes[0].data = nullptr; }).find("incomplete"),
            std::string::npos);
}

TEST_F(RanksTest, AFolderThatIsNotSharedIsNoticed) {
  const TemporaryFolder other;
  const auto errors = run_ranks(2, [&](Peers& peers) {
    storage::LocalStore store(peers.rank() == 0 ? folder_.path() : other.path());
    Writer(store, {}, small, &peers).write(RankLayout(layouts()[1], peers.rank()).snapshot(2));
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("the same folder"), std::string::npos);
  EXPECT_TRUE(names().empty());
  EXPECT_TRUE(fs::is_empty(other.path()));
}

// A rank that ends on the way, before or after its files were handed over: no checkpoint comes of it,
// and of what the others leave nothing survives the next write.
TEST_F(RanksTest, ARankThatEndsLeavesNoCheckpoint) {
  const Layout& layout = layouts()[3];
  for (int leaving = 0; leaving < 4; ++leaving)
    for (const int polls : {0, 1, 2}) {
      const auto errors = run_ranks(4, [&](Peers& peers) {
        Writer writer(store_, {}, small, &peers);
        writer.write(RankLayout(layout, peers.rank()).snapshot(1));
        writer.write_in_background(RankLayout(layout, peers.rank()).snapshot(2));
        for (int i = 0; i < polls; ++i) writer.poll();
        if (peers.rank() == leaving) base::fail("I leave");
        writer.wait();
      });
      EXPECT_EQ(errors[static_cast<size_t>(leaving)], "I leave");
      // A checkpoint that was committed before rank 0 noticed is whole.
      const int64_t newest = Reader::newest_intact(store_)->manifest().step;
      if (newest == 2) {
        EXPECT_EQ(polls, 2);
      }
      expect_content(*Reader::newest_intact(store_), layouts()[0], 0, newest);
      save(layout, 3);
      for (const Listed& listed : list_steps(store_)) EXPECT_TRUE(listed.committed());
      expect_content(Reader(store_, 3, Check::hashes), layouts()[0], 0, 3);
      fs::remove_all(folder_.path() / prefix_of_step(3));
      fs::remove_all(folder_.path() / prefix_of_step(2));
    }
}

// What a rank of an earlier attempt has left, or still writes, never gets in the way.
TEST_F(RanksTest, AttemptsDoNotMeet) {
  const Layout& layout = layouts()[1];
  const fs::path folder = folder_.path() / "step-000000005";
  fs::create_directories(folder);
  const std::string late = data_file_name("01234567", 1, 0);
  std::ofstream(folder / late) << "left";
  const auto errors = run_ranks(2, [&](Peers& peers) {
    storage::FaultStore faults(store_);
    if (peers.rank() == 1)
      faults.add({.operation = Operation::commit, .effect = Fault::Effect::delay,
                  .delay = std::chrono::milliseconds(50)});
    Writer writer(faults, {}, small, &peers);
    writer.write_in_background(RankLayout(layout, peers.rank()).snapshot(5));
    // Cleaned up before anyone wrote; and now a process that is believed dead comes late.
    if (peers.rank() == 0) {
      EXPECT_FALSE(fs::exists(folder / late));
      store_.put("step-000000005/" + late, "late");
    }
    writer.wait();
    expect_content(Reader(store_, 5, Check::hashes), layout, peers.rank(), 5);
    peers.gather("");
    peers.broadcast("");
    EXPECT_TRUE(fs::exists(folder / late)) << "it belongs to an attempt of which nobody here knows";
    peers.gather("");
    peers.broadcast("");
    writer.write(RankLayout(layout, peers.rank()).snapshot(6));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_FALSE(fs::exists(folder / late));
  expect_content(Reader(store_, 5, Check::hashes), layout, 0, 5);
}

// All ranks fall back together, although only one of them reads what is damaged.
TEST_F(RanksTest, AllResumeFromTheSameStep) {
  const Layout& layout = layouts()[4];
  for (int64_t step = 1; step <= 3; ++step) save(layout, step);
  const auto load_all = [&](std::vector<std::string>& complaints_of_1) {
    std::vector<int64_t> steps(3, -1);
    const auto errors = run_ranks(3, [&](Peers& peers) {
      const RankLayout held(layout, peers.rank());
      std::vector<std::string> complaints;
      std::vector<float> values(static_cast<size_t>(held.range().size()));
      const auto reader = load_newest(
          store_, peers,
          [&](const Reader& candidate) {
            read_range(candidate, "moment1", "F32", held.entries(), held.range(), values.data());
          },
          &complaints);
      ASSERT_TRUE(reader);
      const int64_t step = reader->manifest().step;
      EXPECT_EQ(values, held.content("moment1", step));
      steps[static_cast<size_t>(peers.rank())] = step;
      if (peers.rank() == 1) complaints_of_1 = complaints;
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_EQ(steps[0], steps[2]);
    return steps[0];
  };
  std::vector<std::string> complaints;
  EXPECT_EQ(load_all(complaints), 3);
  EXPECT_TRUE(complaints.empty());

  const auto damage = [&](int64_t step, const std::string& parameter, const std::string& kind) {
    const Reader reader(store_, step);
    const StoredBox& box = reader.manifest().find(parameter, kind)->boxes.back();
    const std::string name = reader.manifest().files[box.file].name;
    const fs::path path = folder_.path() / prefix_of_step(step) / name;
    std::string bytes = base::read_file(path);
    bytes[box.begin] ^= 1;
    base::write_file_atomically(path, bytes);
    return path.string();
  };
  damage(3, "six", "moment2");
  EXPECT_EQ(load_all(complaints), 3) << "nobody reads what is damaged";
  const std::string last = damage(3, "scalar", "moment1");  // in the last rank's range alone
  EXPECT_EQ(load_all(complaints), 2);
  ASSERT_EQ(complaints.size(), 1U);
  EXPECT_NE(complaints[0].find("step 3"), std::string::npos);
  EXPECT_NE(complaints[0].find(last), std::string::npos) << complaints[0];
  fs::remove(folder_.path() / prefix_of_step(2) / Reader(store_, 2).manifest().files[0].name);
  EXPECT_EQ(load_all(complaints), 1);
  EXPECT_EQ(complaints.size(), 2U);
}

TEST_F(RanksTest, LoadingEndsForAllWhenItEndsForOne) {
  const auto load = [&](const std::function<void(Peers&, const Reader&)>& work) {
    std::vector<int> found(2, -1);
    const auto errors = run_ranks(2, [&](Peers& peers) {
      const auto reader =
          load_newest(store_, peers, [&](const Reader& candidate) { work(peers, candidate); });
      found[static_cast<size_t>(peers.rank())] = reader ? 1 : 0;
    });
    return std::pair(errors, found);
  };
  const auto fine = [](Peers&, const Reader&) {};
  EXPECT_EQ(load(fine).second, (std::vector<int>{0, 0}));
  save(layouts()[1], 1);
  EXPECT_EQ(load(fine).second, (std::vector<int>{1, 1}));
  const auto errors = load([](Peers& peers, const Reader&) {
                        if (peers.rank() == 1) base::fail_usage("another model");
                      }).first;
  EXPECT_EQ(errors, (std::vector<std::string>{"rank 1: another model", "another model"}));
}

}  // namespace
}  // namespace sauropod::checkpoint

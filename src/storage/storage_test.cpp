#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "storage/fault_store.h"
#include "storage/local_store.h"

namespace sauropod::storage {
namespace {

namespace fs = std::filesystem;

class StorageTest : public ::testing::Test {
 protected:
  StorageTest() {
    std::string pattern = (fs::temp_directory_path() / "sauropod-storage-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~StorageTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::vector<std::string> keys(const ObjectStore& store, const std::string& prefix) {
  std::vector<std::string> result;
  for (const ObjectInfo& object : store.list(prefix)) result.push_back(object.key);
  return result;
}

Cause cause_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const StoreError& error) {
    return error.cause();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Cause::unavailable;
}

TEST_F(StorageTest, PutsGetsListsRemoves) {
  LocalStore store(folder_ / "new" / "place");
  EXPECT_TRUE(store.list("").empty());
  store.put("a/b/one", "first");
  store.put("a/two", "");
  store.put("c", "third");
  EXPECT_EQ(keys(store, ""), (std::vector<std::string>{"a/b/one", "a/two", "c"}));
  EXPECT_EQ(keys(store, "a/"), (std::vector<std::string>{"a/b/one", "a/two"}));
  EXPECT_EQ(keys(store, "a/b/o"), (std::vector<std::string>{"a/b/one"}));
  EXPECT_TRUE(keys(store, "b").empty());
  EXPECT_EQ(store.get("a/b/one", 100), "first");
  EXPECT_EQ(store.size("a/b/one"), 5U);
  EXPECT_EQ(store.size("a/b"), std::nullopt);
  EXPECT_EQ(store.size("a/b/none"), std::nullopt);
  store.put("a/b/one", "replaced");
  char part[4];
  store.read("a/b/one", 2, 4, part);
  EXPECT_EQ(std::string_view(part, 4), "plac");
  store.remove("a/b/one");
  store.remove("a/b/one");
  EXPECT_FALSE(fs::exists(folder_ / "new/place/a/b")) << "empty folders go with their last object";
  store.remove("a/two");
  store.remove("c");
  EXPECT_TRUE(fs::exists(folder_ / "new/place")) << "the store's own folder stays";
}

TEST_F(StorageTest, NamesTheObjectAndTheCause) {
  LocalStore store(folder_);
  store.put("key", "12345");
  char byte;
  EXPECT_EQ(cause_of([&] { store.read("none", 0, 1, &byte); }), Cause::missing);
  EXPECT_EQ(cause_of([&] { store.read("key", 5, 1, &byte); }), Cause::missing);
  EXPECT_EQ(cause_of([&] { store.get("none", 10); }), Cause::missing);
  EXPECT_THROW(store.get("key", 4), base::Error);
  try {
    char many[10];
    store.read("key", 0, 10, many);
    FAIL();
  } catch (const StoreError& error) {
    EXPECT_NE(std::string(error.what()).find((folder_ / "key").string()), std::string::npos);
  }
}

TEST_F(StorageTest, RefusesKeysThatLeaveTheStore) {
  LocalStore store(folder_);
  for (const char* key : {"", "/a", "a/", "a//b", "..", "a/../b", "a/.", "a\nb"})
    EXPECT_THROW(store.put(key, "x"), base::Error) << key;
}

TEST_F(StorageTest, AnUploadIsInvisibleUntilCommitted) {
  LocalStore store(folder_);
  {
    const auto upload = store.create("p/object", 4);
    upload->write("ab", 2);
    EXPECT_TRUE(store.list("").empty());
    EXPECT_EQ(store.size("p/object"), std::nullopt);
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "p"));
  const auto upload = store.create("p/object", 4);
  upload->write("ab", 2);
  upload->write("cd", 2);
  upload->commit();
  EXPECT_EQ(store.get("p/object", 10), "abcd");
}

TEST_F(StorageTest, RemovesWhatKilledUploadsLeft) {
  LocalStore store(folder_);
  store.put("step-1/kept", "x");
  for (const char* name : {"step-1/data.tmp-77-0", "step-2/data.tmp-77-1", "other.tmp-77-2"}) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "half";
  }
  fs::create_directories(folder_ / "step-3");
  EXPECT_EQ(keys(store, ""), (std::vector<std::string>{"step-1/kept"}));
  store.remove_unfinished("step-");
  EXPECT_FALSE(fs::exists(folder_ / "step-1/data.tmp-77-0"));
  EXPECT_FALSE(fs::exists(folder_ / "step-2"));
  EXPECT_FALSE(fs::exists(folder_ / "step-3"));
  EXPECT_TRUE(fs::exists(folder_ / "step-1/kept"));
  EXPECT_TRUE(fs::exists(folder_ / "other.tmp-77-2"));
}

// The kernel itself refuses to let a file grow, as a full disk would.
// Two that remove the last files of one folder: it vanishes for one of them on the way.
TEST_F(StorageTest, RemovingSideBySide) {
  LocalStore store(folder_);
  for (int round = 0; round < 100; ++round) {
    for (const char* key : {"a/b/1", "a/b/2"}) store.put(key, "x");
    std::string errors[2];
    const auto remove = [&](int which) {
      try {
        store.remove(which == 0 ? "a/b/1" : "a/b/2");
      } catch (const base::Error& error) {
        errors[which] = error.what();
      }
    };
    std::thread other(remove, 1);
    remove(0);
    other.join();
    ASSERT_EQ(errors[0] + errors[1], "") << "round " << round;
    ASSERT_FALSE(fs::exists(folder_ / "a"));
  }
}

TEST_F(StorageTest, AFileThatCannotGrowLeavesNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    LocalStore store(folder_);
    try {
      store.put("object", std::string(5000, 'x'));
    } catch (const StoreError& error) {
      ::_exit(error.cause() == Cause::no_space && fs::is_empty(folder_) ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(StorageTest, FaultsStrikeTheOperationTheyName) {
  LocalStore local(folder_);
  FaultStore store(local);
  store.add({.operation = Operation::write, .nth = 2, .cause = Cause::no_space});
  store.put("a", "x");
  EXPECT_EQ(cause_of([&] { store.put("b", "x"); }), Cause::no_space);
  store.put("c", "x");
  EXPECT_EQ(keys(local, ""), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(store.count(Operation::write), 3U);

  store.clear();
  store.add({.nth = 3, .repeat = true, .cause = Cause::read_only});
  EXPECT_TRUE(store.size("a"));
  EXPECT_TRUE(store.size("c"));
  EXPECT_EQ(cause_of([&] { store.remove("a"); }), Cause::read_only);
  EXPECT_EQ(cause_of([&] { store.list(""); }), Cause::read_only);
}

TEST_F(StorageTest, SilentFaults) {
  LocalStore local(folder_);
  FaultStore store(local);
  store.add({.operation = Operation::commit, .effect = Fault::Effect::truncate});
  store.put("half", "12345678");
  EXPECT_EQ(local.get("half", 100), "1234");
  store.clear();
  store.put("whole", "12345678");
  store.add({.operation = Operation::read, .effect = Fault::Effect::flip_byte});
  EXPECT_NE(store.get("whole", 100), "12345678");
  EXPECT_EQ(store.get("whole", 100), "12345678");
}

TEST_F(StorageTest, ShortWritesAndKills) {
  LocalStore local(folder_);
  FaultStore store(local);
  store.add({.operation = Operation::write,
             .effect = Fault::Effect::short_write,
             .cause = Cause::no_space});
  EXPECT_EQ(cause_of([&] { store.put("a", "12345678"); }), Cause::no_space);
  EXPECT_TRUE(local.list("").empty());

  const pid_t child = ::fork();
  if (child == 0) {
    store.clear();
    store.add({.operation = Operation::commit, .effect = Fault::Effect::kill});
    store.put("a", "12345678");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(local.list("").empty());
}

}  // namespace
}  // namespace sauropod::storage

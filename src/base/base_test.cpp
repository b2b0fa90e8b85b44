#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "base/threads.h"
#include "base/units.h"

namespace sauropod::base {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("base_test." + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FileTest, AtomicWriteReplacesWhole) {
  const auto path = folder_ / "a";
  write_file_atomically(path, "first");
  write_file_atomically(path, std::string("sec\0ond", 7));
  EXPECT_EQ(read_file(path), std::string("sec\0ond", 7));
  EXPECT_EQ(MappedFile(path).text(), std::string_view("sec\0ond", 7));
}

TEST_F(FileTest, UncommittedFileLeavesNothing) {
  { AtomicFile(folder_ / "a").write("half"); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FileTest, SignalsRemoveWhatIsHalfWritten) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          clean_up_on_signals();
          write_file_atomically(folder_ / "done", "whole");
          AtomicFile file(folder_ / "half");
          file.write("half");
          ::raise(signal_number);
        },
        ::testing::KilledBySignal(signal_number), "");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
    EXPECT_EQ(read_file(folder_ / "done"), "whole");
  }
}

TEST_F(FileTest, ErrorsNameThePathAndRemedy) {
  try {
    read_file(folder_ / "missing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("check the path"), std::string::npos);
  }
}

TEST(Hash, MatchesTheReferenceAndStreams) {
  EXPECT_EQ(hash128(""), "99aa06d3014798d86001c324468d497f");
  Hasher hasher;
  hasher.update("sauro");
  hasher.update("pod");
  EXPECT_EQ(hasher.digest(), hash128("sauropod"));
}

// Known-answer vectors of Random123's kat_vectors for philox4x32-10.
TEST(Random, PhiloxMatchesKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, NormalHasTheRightMoments) {
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random_normal(7, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
}

TEST(Random, PermuteIsABijection) {
  for (uint64_t size : {1, 2, 3, 5, 16, 17, 1000, 4096, 5000}) {
    std::set<uint64_t> seen;
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t p = permute(99, size, i);
      ASSERT_LT(p, size);
      seen.insert(p);
      fixed += p == i;
    }
    EXPECT_EQ(seen.size(), size);
    if (size >= 1000) {
      EXPECT_LT(fixed, 10u);
    }
  }
}

TEST(Threads, CoversTheRangeOnceAndRethrows) {
  std::vector<std::atomic<int>> hits(1003);
  parallel_for(hits.size(), 10, 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) ++hits[i];
  });
  for (const auto& hit : hits) EXPECT_EQ(hit, 1);
  EXPECT_THROW(parallel_for(100, 1, 3,
                            [](size_t begin, size_t) {
                              if (begin == 50) fail("boom");
                            }),
               Error);
}

TEST(Units, ReadAndWrite) {
  EXPECT_EQ(parse_bytes("8GB", "x"), 8000000000);
  EXPECT_EQ(parse_bytes("1.5 GiB", "x"), 1610612736);
  EXPECT_EQ(parse_duration("2h", "x").count(), 7200);
  EXPECT_THROW(parse_bytes("8 bananas", "memory"), Error);
  EXPECT_THROW(parse_duration("-1s", "x"), Error);
  EXPECT_EQ(format_bytes(11300000), "11.3 MB");
  EXPECT_EQ(format_count(177.9e9), "178B");
  EXPECT_EQ(format_duration(243), "4m 03s");
}

}  // namespace
}  // namespace sauropod::base

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "telemetry/journal.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"

namespace sauropod::telemetry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Whether the text has the form of the pattern, in which 0 stands for any digit.
bool has_form(std::string_view text, std::string_view pattern) {
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(), [](char c, char p) {
    return p == '0' ? c >= '0' && c <= '9' : c == p;
  });
}

class TelemetryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("telemetry_test." + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(TelemetryTest, MetricsResumeDropsLaterAndTornLines) {
  const fs::path path = folder_ / "metrics.jsonl";
  {
    MetricsFile metrics(path);
    for (int step = 1; step <= 5; ++step) metrics.append({{"step", step}, {"loss", 0.5 * step}});
  }
  const std::string whole = base::read_file(path);
  base::write_file_atomically(path, whole + R"({"step":6,"lo)");
  {
    MetricsFile metrics(path);  // keeps all whole lines
  }
  EXPECT_EQ(base::read_file(path), whole);
  {
    MetricsFile metrics(path, 3);
    metrics.append({{"step", 4}});
  }
  std::vector<int> steps;
  read_json_lines(path, [&](const json& line) { steps.push_back(line["step"]); });
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4}));
  { MetricsFile metrics(path, -1); }
  EXPECT_EQ(fs::file_size(path), 0u);
}

TEST_F(TelemetryTest, DamageInTheMiddleCostsOnlyThatLine) {
  const fs::path path = folder_ / "metrics.jsonl";
  base::write_file_atomically(path, "{\"step\":1}\nnoise\n{\"step\":2}\n[3]\n{\"step\":9}\n");
  { MetricsFile metrics(path, 5); }
  EXPECT_EQ(base::read_file(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(TelemetryTest, NumbersThatAreNotFiniteBecomeNull) {
  const fs::path path = folder_ / "metrics.jsonl";
  MetricsFile(path).append({{"step", 1}, {"loss", std::nan("")}});
  EXPECT_EQ(base::read_file(path), "{\"loss\":null,\"step\":1}\n");
}

TEST_F(TelemetryTest, KilledWriterLeavesWholeLines) {
  const fs::path path = folder_ / "metrics.jsonl";
  const pid_t child = ::fork();
  if (child == 0) {
    MetricsFile metrics(path);
    for (int step = 1;; ++step) metrics.append({{"step", step}, {"pad", std::string(500, 'x')}});
  }
  while (!fs::exists(path) || fs::file_size(path) < 100000) std::this_thread::yield();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::string text = base::read_file(path);
  ASSERT_EQ(text.back(), '\n');
  int last = 0;
  read_json_lines(path, [&](const json& line) { EXPECT_EQ(line["step"], ++last); });
  EXPECT_EQ(last, std::count(text.begin(), text.end(), '\n'));
}

TEST_F(TelemetryTest, FailedWriteLeavesNoTornLine) {
  const fs::path path = folder_ / "metrics.jsonl";
  MetricsFile metrics(path);
  metrics.append({{"step", 1}});
  const auto size = fs::file_size(path);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{size + 5, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(metrics.append({{"step", 2}}), base::Error);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(fs::file_size(path), size);
  metrics.append({{"step", 2}});
  EXPECT_EQ(base::read_file(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(TelemetryTest, JournalWritesTimeAndSurvivesTearing) {
  const fs::path path = folder_ / "events.jsonl";
  Journal(path).event("started", {{"parameters", 10}});
  base::write_file_atomically(path, base::read_file(path) + "{\"ev");
  Journal(path).event("stopped");
  std::vector<json> events;
  read_json_lines(path, [&](const json& line) { events.push_back(line); });
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["event"], "started");
  EXPECT_EQ(events[0]["parameters"], 10);
  EXPECT_EQ(events[1]["event"], "stopped");
  EXPECT_TRUE(has_form(events[0]["time"].get<std::string>(), "0000-00-00T00:00:00.000Z"));
}

TEST_F(TelemetryTest, OpeningInAMissingFolderNamesIt) {
  EXPECT_THROW(MetricsFile(folder_ / "none" / "metrics.jsonl"), base::Error);
}

// A screen that keeps what was written, with a width and a clock set by the test.
struct TestScreen {
  std::string output;
  int columns = 80;
  double now = 100;
  Screen screen;
  explicit TestScreen(bool terminal, bool utf8 = true)
      : screen({.write = [this](std::string_view text) { output += text; },
                .columns = [this] { return columns; },
                .clock = [this] { return now; },
                .terminal = terminal,
                .utf8 = utf8}) {}
  // What was written since the last call.
  std::string take() { return std::exchange(output, ""); }
};

TEST(Progress, PlainLinesComeByShareAndByTime) {
  TestScreen test(false);
  Progress progress("Packing", 1000, 0, test.screen);
  for (int i = 1; i <= 99; ++i) progress.update(i);
  EXPECT_EQ(test.take(), "");
  test.now += 2;
  progress.update(100, "x 1");
  EXPECT_EQ(test.take(), "Packing: 10% (100 of 1,000), 2.0s, ETA 18s, x 1\n");
  test.now += 9;
  progress.update(101);
  EXPECT_EQ(test.take(), "");
  test.now += 1;
  progress.update(102, "x 2");
  EXPECT_NE(test.take().find("Packing: 10% (102 of 1,000), 12s, ETA"), std::string::npos);
  progress.finish("x 3");
  EXPECT_EQ(test.take(), "Packing: done in 12s, x 3\n");
  progress.finish();
  EXPECT_EQ(test.take(), "");
}

TEST(Progress, BarRedrawsAtMostTenTimesASecondAndFitsTheWidth) {
  TestScreen test(true);
  Progress progress("Training", 200, 100, test.screen);
  test.take();
  for (int i = 0; i < 1000; ++i) {
    test.now += 0.001;
    progress.update(100 + i / 20, "loss 5.4");
  }
  const std::string output = test.take();
  EXPECT_LE(std::count(output.begin(), output.end(), '%'), 10);
  EXPECT_GE(std::count(output.begin(), output.end(), '%'), 8);
  for (const int columns : {120, 80, 40, 20, 5, 1}) {
    test.columns = columns;
    test.now += 1;
    progress.update(150, "loss 5.4");
    std::string drawn = test.take();
    drawn = drawn.substr(drawn.find("\x1b[J") + 3);
    EXPECT_LT(display_columns(drawn), static_cast<size_t>(std::max(2, columns))) << drawn;
  }
}

TEST(Progress, EstimateLeavesOutWhatWasDoneBefore) {
  TestScreen test(true, false);
  Progress progress("T", 200, 100, test.screen);
  test.now += 10;
  progress.update(150);
  const std::string drawn = test.take();
  EXPECT_NE(drawn.find("75%"), std::string::npos);
  EXPECT_NE(drawn.find("ETA 10s"), std::string::npos) << drawn;
  EXPECT_EQ(drawn.find("█"), std::string::npos);
}

TEST(Progress, BarIsRemovedWhenWorkIsAbandoned) {
  TestScreen test(true);
  { Progress progress("T", 10, 0, test.screen); }
  const std::string output = test.take();
  EXPECT_EQ(output.substr(output.size() - 4), "\r\x1b[J");
}

TEST(Screen, LinesGoAboveTheStatus) {
  TestScreen test(true);
  test.screen.status("bar");
  EXPECT_EQ(test.take(), "bar");
  test.screen.line("message");
  EXPECT_EQ(test.take(), "\r\x1b[Jmessage\nbar");
  test.screen.status("");
  EXPECT_EQ(test.take(), "\r\x1b[J");
}

TEST(Screen, NarrowedTerminalIsCleanedOfWrappedRows) {
  TestScreen test(true);
  test.screen.status(std::string(70, 'x'));
  test.take();
  test.columns = 30;
  test.screen.status("y");
  EXPECT_EQ(test.take(), "\r\x1b[2A\x1b[Jy");
}

TEST(Screen, NoStatusWithoutATerminal) {
  TestScreen test(false);
  test.screen.status("bar");
  test.screen.line("message");
  EXPECT_EQ(test.take(), "message\n");
}

TEST(Screen, CutsAtCodePoints) {
  EXPECT_EQ(fit_columns("äöü", 3, true), "äöü");
  EXPECT_EQ(fit_columns("äöüß", 3, true), "äö…");
  EXPECT_EQ(fit_columns("abcdef", 5, false), "ab...");
  EXPECT_EQ(fit_columns("abcdef", 1, true), ".");
}

TEST(Log, HidesSecretsAndFiltersByLevel) {
  log::hide("s3cr3t-key");
  log::hide("abc");
  EXPECT_EQ(log::without_secrets("key=s3cr3t-key, again s3cr3t-keys3cr3t-key abc"),
            "key=***, again ****** abc");
  EXPECT_FALSE(log::enabled(log::Level::debug));
  log::set_level(log::Level::error);
  EXPECT_FALSE(log::enabled(log::Level::warn));
  ::testing::internal::CaptureStderr();
  log::warn("unseen");
  log::error("seen {} s3cr3t-key", 5);
  const std::string output = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has_form(output, "0000-00-00 00:00:00 error seen 5 ***\n"))
      << output;
  log::set_level(log::Level::info);
}

TEST(Numbers, AreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace sauropod::telemetry

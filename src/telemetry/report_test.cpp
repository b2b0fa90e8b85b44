#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "telemetry/metrics.h"
#include "telemetry/report.h"
#include "telemetry/series.h"

namespace sauropod::telemetry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ = fs::temp_directory_path() / ("report_test." + std::to_string(::getpid())) / "a <run>";
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(run_.parent_path()); }

  void put(const char* name, const std::string& bytes) {
    base::write_file_atomically(run_ / name, bytes);
  }

  void put_metrics(int64_t steps) {
    std::string lines;
    for (int64_t step = 1; step <= steps; ++step) {
      json line = {{"step", step},
                   {"loss", 4 + 5 / static_cast<double>(step) + (step % 2 ? 0.01 : -0.01)},
                   {"grad_norm", 1.0},
                   {"learning_rate", 1e-3},
                   {"tokens", step * 100},
                   {"tokens_per_second", 50.0},
                   {"gemm_fraction", 0.5}};
      if (step == steps / 2) {
        line["loss"] = 100.0;
        line["skipped"] = true;
      }
      if (step % 10 == 0) line["validation_bits_per_byte"] = 2.0;
      lines += line.dump() + "\n";
    }
    put("metrics.jsonl", lines);
  }

  fs::path run_;
};

// The JSON that the page's script will read.
json data_in(const std::string& page) {
  const std::string open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

json figure(const json& data, const std::string& label) {
  for (const json& entry : data["figures"])
    if (entry["label"] == label) return entry;
  return nullptr;
}

TEST_F(ReportTest, ShowsWhatTheRunLeft) {
  put_metrics(200);
  put("run.toml", "[model]\nfamily = 'jurassic'\nlayers = 6\nhidden = 256\n[train]\nsteps = 400\n");
  put("events.jsonl",
      "{\"time\":\"2026-01-02T03:04:05.678Z\",\"event\":\"started\",\"parameters\":8912384}\n"
      "{\"time\":\"2026-01-02T03:05:05.678Z\",\"event\":\"checkpoint\",\"step\":7}\n");
  put("eval.json", R"({"bits_per_byte":1.5,"bytes":1000000,"tokens":200000,"nats_per_token":5})");
  put("compressors.json", R"({"zstd -19":2.5,"xz -9":2.25})");
  put("tokenizer_inspect.json",
      R"({"size":16384,"multi_word_items":5000,"multi_word_share":0.23,
          "longest":[{"text":" as well as the","count":0}],"most_used":[{"text":" of the","count":9}]})");
  put("samples.json", R"([{"prompt":"The","text":"The module"},{"prompt":"","text":"x"}])");
  const json data = report_data(run_);
  EXPECT_EQ(data["title"], "a <run>");
  EXPECT_EQ(data["subtitle"], "jurassic · 6 layers · hidden 256");
  EXPECT_EQ(data["started"], "2026-01-02T03:04:05.678Z");
  EXPECT_EQ(figure(data, "Parameters")["value"], "8.9M");
  EXPECT_EQ(figure(data, "Trained on")["value"], "20.0K tokens");
  EXPECT_EQ(figure(data, "Trained on")["detail"], "200 steps of 400");
  EXPECT_EQ(figure(data, "Time in training")["value"], "6m 40s");
  EXPECT_EQ(figure(data, "Speed")["value"], "50 tokens/s");
  EXPECT_EQ(figure(data, "Use of the machine")["value"], "50%");
  EXPECT_EQ(figure(data, "Held-out text")["value"], "1.500");
  EXPECT_EQ(figure(data, "Text per token")["value"], "5.00 bytes");
  EXPECT_NEAR(std::stod(figure(data, "Final training loss")["value"].get<std::string>()), 4.025,
              0.01);
  std::vector<std::string> charts;
  for (const json& chart : data["charts"]) charts.push_back(chart["id"]);
  EXPECT_EQ(charts, (std::vector<std::string>{"loss", "validation", "throughput", "learning_rate",
                                              "grad_norm"}));
  EXPECT_EQ(data["skipped"], json::parse(R"({"count":1,"steps":[100]})"));
  EXPECT_EQ(data["compression"][0]["name"], "this model");
  EXPECT_EQ(data["compression"][1]["name"], "xz -9");
  EXPECT_EQ(data["vocabulary"]["most_used"][0]["text"], " of the");
  EXPECT_TRUE(data["vocabulary"]["longest"][0]["count"].is_null());
  EXPECT_EQ(data["vocabulary"]["summary"],
            "5,000 of 16,384 items are of several words; 23% of the tokens of the text are such "
            "items.");
  EXPECT_EQ(data["samples"][0]["text"], " module");
  EXPECT_EQ(data["events"][1]["detail"], "step 7");
  EXPECT_TRUE(data["missing"].empty());
}

TEST_F(ReportTest, LeavesOutWhatIsMissingAndSaysSo) {
  put_metrics(20);
  const json data = report_data(run_);
  EXPECT_EQ(data["missing"].size(), 4u);
  EXPECT_TRUE(data["samples"].empty());
  EXPECT_FALSE(data.contains("recipe"));
  EXPECT_EQ(figure(data, "Validation")["value"], "2.000");
  EXPECT_NE(report_page(data).find("</html>"), std::string::npos);
}

TEST_F(ReportTest, NoMetricsYetIsNoError) {
  put("run.toml", "");
  put("metrics.jsonl", "");
  const json data = report_data(run_);
  EXPECT_TRUE(data["charts"].empty());
  EXPECT_TRUE(data["figures"].empty());
}

TEST_F(ReportTest, RefusesWhatIsNoRunAndNamesBrokenFiles) {
  try {
    report_data(run_);
    ADD_FAILURE();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), base::Exit::usage);
    EXPECT_NE(std::string(error.what()).find("holds no run"), std::string::npos);
  }
  EXPECT_THROW(report_data(run_ / "none"), base::Error);
  put_metrics(3);
  put("eval.json", "{\"bits_per_byte\":");
  try {
    report_data(run_);
    ADD_FAILURE();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("eval.json is not JSON"), std::string::npos);
  }
}

TEST_F(ReportTest, TextFromTheRunNeverBecomesMarkup) {
  const std::string evil = "</script><script>alert(1)</script><!-- {{data}} {{report.js}} \" & '";
  put_metrics(5);
  put("run.toml", "# " + evil + "\n");
  put("events.jsonl", json({{"time", evil}, {"event", evil}, {"x", evil}}).dump() + "\n");
  put("samples.json", json::array({{{"prompt", evil}, {"text", evil}}}).dump());
  put("tokenizer_inspect.json",
      json({{"longest", json::array({{{"text", evil}, {"count", 1}}})}}).dump());
  put("compressors.json", json({{evil, 2.0}}).dump());
  const std::string page = report_page(report_data(run_));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<!-- {{"), std::string::npos);
  EXPECT_NE(page.find("<title>a &lt;run&gt;"), std::string::npos);
  // Two scripts and no more: the data and the page's own.
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2u);
  const json data = data_in(page);
  EXPECT_EQ(data["samples"][0]["prompt"], evil);
  EXPECT_EQ(data["events"][0]["event"], evil);
  EXPECT_EQ(data["vocabulary"]["longest"][0]["text"], evil);
}

TEST_F(ReportTest, PageAsksNothingOfTheNetwork) {
  put_metrics(5);
  const fs::path path = write_report(run_);
  EXPECT_EQ(path, run_ / "report.html");
  const std::string page = base::read_file(path);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* outside : {"src=\"", "href=", "@import", "url(", "fetch(", "https://"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_EQ(page.find("{{"), std::string::npos);
}

TEST_F(ReportTest, LongRunsStaySmall) {
  put_metrics(300000);
  const json data = report_data(run_);
  const std::string page = report_page(data);
  EXPECT_LT(page.size(), 1000000u);
  const json& curve = data["charts"][0]["curve"];
  EXPECT_LE(curve["step"].size(), 1000u);
  EXPECT_EQ(curve["high"].size(), curve["low"].size());
  double highest = 0, smoothed = 0;
  for (const json& value : curve["high"]) highest = std::max(highest, value.get<double>());
  for (size_t i = 10; i < curve["smooth"].size(); ++i)
    smoothed = std::max(smoothed, curve["smooth"][i].get<double>());
  EXPECT_EQ(highest, 100.0);    // the skipped step is in the envelope
  EXPECT_LT(smoothed, 4.1);     // and not in the smoothed curve
}

TEST_F(ReportTest, ReadsARunInProgress) {
  put("metrics.jsonl", "{\"step\":1,\"loss\":9.5}\n{\"step\":2,\"loss\":9.4}\n{\"step\":3,\"lo");
  const json data = report_data(run_);
  EXPECT_EQ(data["charts"][0]["curve"]["step"], json::parse("[1,2]"));
}

TEST(Series, ReduceKeepsExtremesAndOrder) {
  Curve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.step.push_back(i);
    curve.tokens.push_back(2 * i);
    curve.value.push_back(i == 500 ? 77 : i == 501 ? std::nan("") : 1);
  }
  const Curve small = reduce(curve, 100);
  ASSERT_EQ(small.size(), 100u);
  EXPECT_EQ(*std::max_element(small.high.begin(), small.high.end()), 77);
  EXPECT_EQ(*std::min_element(small.low.begin(), small.low.end()), 1);
  EXPECT_TRUE(std::is_sorted(small.step.begin(), small.step.end()));
  const Curve whole = reduce(curve, 1000);
  EXPECT_EQ(whole.size(), 999u);
  EXPECT_TRUE(whole.low.empty());
}

TEST(Series, SmoothingKeepsLinesAndPassesOverSkippedSteps) {
  Curve curve;
  for (int i = 0; i < 300; ++i) {
    curve.step.push_back(i);
    curve.tokens.push_back(i);
    curve.value.push_back(i == 150 ? 1e6 : 5 - 0.01 * i);
    curve.weight.push_back(i != 150);
  }
  const std::vector<double> smoothed = smooth(curve);
  for (int i = 0; i < 300; ++i) EXPECT_NEAR(smoothed[i], 5 - 0.01 * i, 1e-9) << i;
}

TEST(Series, MedianPassesOverUnknownValues) {
  EXPECT_EQ(median({3, std::nan(""), 1, 2}), 2);
  EXPECT_TRUE(std::isnan(median({})));
}

}  // namespace
}  // namespace sauropod::telemetry

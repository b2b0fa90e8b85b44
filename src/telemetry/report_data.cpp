// Gathers what report.html shows. The object:
//   title, subtitle, started: strings
//   figures: [{label, value, detail}]
//   charts: [{id, title, unit, log: start with a logarithmic axis,
//             curve: {step, tokens, value, low?, high?, smooth?}, points?: {name, step, tokens, value},
//             levels?: [{name, value}]}]
//   skipped: {count, steps: [first few hundred]}
//   compression: [{name, value, own}]   bits per byte
//   vocabulary: {summary, longest: [{text, count}], most_used: [{text, count}]}; count may be null
//   samples: [{prompt, text}]
//   events: [{time, event, detail}], recipe: the text of run.toml
//   missing: [sentence]
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "config/toml.h"
#include "config/write.h"
#include "telemetry/json_lines.h"
#include "telemetry/progress.h"
#include "telemetry/report.h"
#include "telemetry/series.h"

namespace sauropod::telemetry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kPoints = 900;      // of one curve
constexpr size_t kMarks = 300;       // skipped steps shown
constexpr size_t kEvents = 200;      // the last ones shown
constexpr size_t kItems = 40;        // of each list of vocabulary items
constexpr size_t kSamples = 12;
constexpr size_t kSampleBytes = 8000;

const double kUnknown = std::numeric_limits<double>::quiet_NaN();

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : kUnknown;
}

int64_t number_or_zero(const json& object, const char* key) {
  const double value = number(object, key);
  return std::isnan(value) ? 0 : static_cast<int64_t>(value);
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Five significant digits are more than a chart shows and half the bytes.
json rounded(const std::vector<double>& values) {
  json out = json::array();
  for (const double value : values) {
    if (value == std::floor(value) && std::abs(value) < 1e15) {
      out.push_back(static_cast<int64_t>(value));
    } else {
      out.push_back(std::stod(fmt::format("{:.5g}", value)));
    }
  }
  return out;
}

json curve_json(const Curve& curve) {
  json out = {{"step", rounded(curve.step)},
              {"tokens", rounded(curve.tokens)},
              {"value", rounded(curve.value)}};
  if (!curve.low.empty()) {
    out["low"] = rounded(curve.low);
    out["high"] = rounded(curve.high);
  }
  return out;
}

// metrics.jsonl, column by column.
struct Metrics {
  std::vector<double> step, tokens;
  std::map<std::string, std::vector<double>> columns;
  std::vector<double> skipped;  // their steps
  std::vector<double> weight;   // 0 for a skipped step

  size_t size() const { return step.size(); }
  Curve curve(const std::string& column) const { return {step, tokens, columns.at(column), weight, {}, {}}; }
};

Metrics read_metrics(const fs::path& path) {
  Metrics metrics;
  for (const char* column :
       {"loss", "grad_norm", "learning_rate", "tokens_per_second", "gemm_fraction",
        "validation_loss", "validation_bits_per_byte"})
    metrics.columns[column];
  read_json_lines(path, [&](const json& line) {
    const double step = number(line, "step");
    if (std::isnan(step)) return;
    metrics.step.push_back(step);
    metrics.tokens.push_back(number(line, "tokens"));
    for (auto& [name, values] : metrics.columns) values.push_back(number(line, name.c_str()));
    const auto skipped = line.find("skipped");
    const bool was_skipped =
        skipped != line.end() && ((skipped->is_boolean() && skipped->get<bool>()) ||
                                  (skipped->is_number() && skipped->get<double>() != 0));
    if (was_skipped) metrics.skipped.push_back(step);
    metrics.weight.push_back(was_skipped ? 0 : 1);
  });
  // Lines without a count of tokens take the one before.
  double last = 0;
  for (double& tokens : metrics.tokens) last = tokens = std::isnan(tokens) ? last : tokens;
  return metrics;
}

class Report {
 public:
  explicit Report(const fs::path& run) : run_(run) {}

  json gather() {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(run_, error);
    if (!fs::is_directory(run_, error))
      base::fail_usage("{} is not a folder; name the folder of a run", run_.string());
    if (!fs::exists(run_ / "metrics.jsonl", error) && !fs::exists(run_ / "run.toml", error))
      base::fail_usage("{} holds no run: neither metrics.jsonl nor run.toml is there",
                       run_.string());
    out_["title"] = whole.filename().string();
    metrics_ = read_metrics(run_ / "metrics.jsonl");
    recipe();
    events();
    const json eval = optional_json("eval.json", "the held-out bits per byte", "`sauropod eval`");
    charts(eval);
    figures(eval);
    vocabulary();
    samples();
    out_["missing"] = missing_;
    return out_;
  }

 private:
  // The value in a file that may be missing (null then, and the page says so) but not broken.
  json optional_json(const char* name, const char* what, const char* source) {
    const fs::path path = run_ / name;
    std::error_code error;
    if (!fs::exists(path, error)) {
      missing_.push_back(fmt::format("{} ({}, from {})", what, name, source));
      return nullptr;
    }
    json value = json::parse(base::read_file(path), nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded())
      base::fail("{} is not JSON; write it again, or remove it to have a report without it",
                 path.string());
    return value;
  }

  void recipe() {
    const fs::path path = run_ / "run.toml";
    std::error_code error;
    if (!fs::exists(path, error)) return;
    const std::string recipe = base::read_file(path);
    out_["recipe"] = recipe;
    config::Value table;
    table.data = config::parse_toml(recipe, path.string());
    settings_ = config::json_value(table);
    std::vector<std::string> parts;
    const json model = settings_.value("model", json::object());
    if (!text(model, "family").empty()) parts.push_back(text(model, "family"));
    const auto add = [&](const char* key, const char* format) {
      if (const double value = number(model, key); value > 0)
        parts.push_back(fmt::format(fmt::runtime(format), grouped(static_cast<int64_t>(value))));
    };
    add("layers", "{} layers");
    add("hidden", "hidden {}");
    add("heads", "{} heads");
    add("context", "context {}");
    const std::string precision = text(settings_.value("train", json::object()), "precision");
    if (!precision.empty()) parts.push_back(precision);
    out_["subtitle"] = fmt::format("{}", fmt::join(parts, " · "));
  }

  void events() {
    json list = json::array();
    read_json_lines(run_ / "events.jsonl", [&](const json& line) {
      if (std::isnan(parameters_)) parameters_ = number(line, "parameters");
      if (!out_.contains("started") && !text(line, "time").empty())
        out_["started"] = text(line, "time");
      std::vector<std::string> details;
      for (const auto& [key, value] : line.items())
        if (key != "time" && key != "event")
          details.push_back(
              fmt::format("{} {}", key, value.is_string() ? value.get<std::string>() : value.dump()));
      std::string detail = fmt::format("{}", fmt::join(details, ", "));
      if (detail.size() > 300) detail = detail.substr(0, 300) + "…";
      list.push_back({{"time", text(line, "time")}, {"event", text(line, "event")},
                      {"detail", detail}});
    });
    if (list.size() > kEvents)
      list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(kEvents));
    out_["events"] = std::move(list);
  }

  void charts(const json& eval) {
    json list = json::array();
    const auto add = [&](const char* id, const char* title, const char* unit,
                         const std::string& column) -> json* {
      const Curve curve = reduce(metrics_.curve(column), kPoints);
      if (curve.size() < 2) return nullptr;
      json& chart = list.emplace_back();
      chart = {{"id", id}, {"title", title}, {"unit", unit}, {"curve", curve_json(curve)}};
      return &chart;
    };

    if (json* chart = add("loss", "Training loss", "nats per token", "loss")) {
      const Curve curve = reduce(metrics_.curve("loss"), kPoints);
      const std::vector<double> smoothed = smooth(curve);
      final_loss_ = smoothed.back();
      (*chart)["curve"]["smooth"] = rounded(smoothed);
      const Curve validation = reduce(metrics_.curve("validation_loss"), kPoints);
      if (validation.size() > 0) {
        (*chart)["points"] = curve_json(validation);
        (*chart)["points"]["name"] = "validation";
      }
    }

    const json compressors =
        optional_json("compressors.json", "compressors to compare with", "the quickstart");
    const Curve validation = reduce(metrics_.curve("validation_bits_per_byte"), kPoints);
    if (validation.size() > 0) last_validation_ = validation.value.back();
    json levels = json::array();
    json compression = json::array();
    if (eval.is_object() && !std::isnan(number(eval, "bits_per_byte")))
      compression.push_back(
          {{"name", "this model"}, {"value", number(eval, "bits_per_byte")}, {"own", true}});
    if (compressors.is_object()) {
      for (const auto& [name, value] : compressors.items()) {
        if (!value.is_number()) continue;
        levels.push_back({{"name", name}, {"value", value}});
        compression.push_back({{"name", name}, {"value", value}, {"own", false}});
      }
    }
    if (json* chart = add("validation", "Validation", "bits per byte", "validation_bits_per_byte"))
      (*chart)["levels"] = levels;
    std::stable_sort(compression.begin(), compression.end(), [](const json& a, const json& b) {
      return a["value"].get<double>() < b["value"].get<double>();
    });
    out_["compression"] = compression;

    add("throughput", "Throughput", "tokens/s", "tokens_per_second");
    if (json* chart = add("learning_rate", "Learning rate", "", "learning_rate")) {
      (*chart)["curve"].erase("low");  // a schedule has no scatter
      (*chart)["curve"].erase("high");
    }
    if (json* chart = add("grad_norm", "Gradient norm", "before clipping", "grad_norm")) {
      const auto& norms = metrics_.columns.at("grad_norm");
      const double middle = median(norms);
      const double highest = *std::max_element(norms.begin(), norms.end(), [](double a, double b) {
        return std::isnan(b) ? false : std::isnan(a) || a < b;
      });
      (*chart)["log"] = middle > 0 && highest > 20 * middle;
    }
    out_["charts"] = std::move(list);
    const size_t shown = std::min(kMarks, metrics_.skipped.size());
    out_["skipped"] = {
        {"count", metrics_.skipped.size()},
        {"steps", rounded({metrics_.skipped.begin(),
                           metrics_.skipped.begin() + static_cast<ptrdiff_t>(shown)})}};
  }

  void figures(const json& eval) {
    json list = json::array();
    const auto add = [&](const char* label, std::string value, std::string detail) {
      list.push_back({{"label", label}, {"value", std::move(value)}, {"detail", std::move(detail)}});
    };
    if (parameters_ > 0) add("Parameters", base::format_count(parameters_), "");
    if (metrics_.size() > 0) {
      const double planned = number(settings_.value("train", json::object()), "steps");
      std::string steps = fmt::format("{} steps", grouped(static_cast<int64_t>(metrics_.step.back())));
      if (planned > metrics_.step.back())
        steps += fmt::format(" of {}", grouped(static_cast<int64_t>(planned)));
      if (metrics_.tokens.back() > 0)
        add("Trained on", base::format_count(metrics_.tokens.back()) + " tokens", steps);
    }
    const auto& speed = metrics_.columns.at("tokens_per_second");
    double seconds = 0, before = 0;
    for (size_t i = 0; i < metrics_.size(); ++i) {
      if (speed[i] > 0) seconds += (metrics_.tokens[i] - before) / speed[i];
      before = metrics_.tokens[i];
    }
    if (seconds > 0) add("Time in training", base::format_duration(seconds), "evaluation left out");
    if (const double middle = median(speed); middle > 0)
      add("Speed", base::format_count(middle) + " tokens/s", "median step");
    if (const double share = median(metrics_.columns.at("gemm_fraction")); share > 0)
      add("Use of the machine", fmt::format("{:.0f}%", 100 * share), "of its matrix product rate");
    if (!std::isnan(final_loss_))
      add("Final training loss", fmt::format("{:.3f}", final_loss_), "nats per token, smoothed");
    const double held_out = eval.is_object() ? number(eval, "bits_per_byte") : kUnknown;
    if (!std::isnan(held_out)) {
      std::string detail = "bits per byte";
      if (const double bytes = number(eval, "bytes"); bytes > 0)
        detail += fmt::format(" of {} unseen", base::format_bytes(bytes));
      add("Held-out text", fmt::format("{:.3f}", held_out), detail);
      if (const double tokens = number(eval, "tokens"); tokens > 0 && number(eval, "bytes") > 0)
        add("Text per token", fmt::format("{:.2f} bytes", number(eval, "bytes") / tokens),
            "of the held-out text");
    } else if (!std::isnan(last_validation_)) {
      add("Validation", fmt::format("{:.3f}", last_validation_), "bits per byte");
    }
    out_["figures"] = std::move(list);
  }

  void vocabulary() {
    const json inspected = optional_json("tokenizer_inspect.json", "the multi-word items",
                                         "`sauropod tokenizer inspect --json`");
    if (!inspected.is_object()) return;
    json lists = json::object();
    for (const char* name : {"longest", "most_used"}) {
      json items = json::array();
      for (const json& item : inspected.value(name, json::array())) {
        if (items.size() == kItems || !item.is_object()) break;
        const double count = number(item, "count");  // 0 where no text was counted
        items.push_back({{"text", text(item, "text")}, {"count", count > 0 ? json(count) : json()}});
      }
      if (!items.empty()) lists[name] = std::move(items);
    }
    std::vector<std::string> parts;
    if (const double size = number(inspected, "size"); size > 0)
      parts.push_back(fmt::format("{} of {} items are of several words",
                                  grouped(number_or_zero(inspected, "multi_word_items")),
                                  grouped(static_cast<int64_t>(size))));
    if (const double share = number(inspected, "multi_word_share"); share > 0)
      parts.push_back(fmt::format("{:.0f}% of the tokens of the text are such items", 100 * share));
    if (!parts.empty()) lists["summary"] = fmt::format("{}.", fmt::join(parts, "; "));
    out_["vocabulary"] = std::move(lists);
  }

  void samples() {
    const json given =
        optional_json("samples.json", "samples of its writing", "`sauropod generate`");
    json list = json::array();
    if (given.is_array()) {
      for (const json& sample : given) {
        if (list.size() == kSamples || !sample.is_object()) break;
        const std::string prompt = text(sample, "prompt");
        std::string written = text(sample, "text");
        if (!prompt.empty() && written.starts_with(prompt)) written.erase(0, prompt.size());
        if (written.size() > kSampleBytes) {
          written.resize(kSampleBytes);
          written += "…";
        }
        list.push_back({{"prompt", prompt}, {"text", written}});
      }
    }
    out_["samples"] = std::move(list);
  }

  const fs::path run_;
  json out_ = json::object();
  json missing_ = json::array();
  json settings_ = json::object();
  Metrics metrics_;
  double parameters_ = kUnknown, final_loss_ = kUnknown, last_validation_ = kUnknown;
};

}  // namespace

json report_data(const fs::path& run) { return Report(run).gather(); }

}  // namespace sauropod::telemetry

// report.html: how a run went, on one page that needs nothing else: no server, no network.
//
// Read from the run's folder (docs/run-folder.md): run.toml, metrics.jsonl, events.jsonl and what other
// commands may have left there (eval.json, compressors.json, tokenizer_inspect.json, samples.json).
// What is missing is left out. The page itself is web/report/, with the data as one JSON object in it;
// its script draws the charts.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sauropod::telemetry {

// Writes run/report.html and returns its path. Throws base::Error when the folder holds no run, or a
// file in it can't be read.
std::filesystem::path write_report(const std::filesystem::path& run);

// What the page shows: keys in report_data.cpp, whose only other reader is web/report/report.js.
nlohmann::json report_data(const std::filesystem::path& run);

// The page for such data. Any text in it is shown as it is: nothing in it becomes markup or script.
std::string report_page(const nlohmann::json& data);

// The files of web/report/ by name.
std::string_view report_file(std::string_view name);

}  // namespace sauropod::telemetry

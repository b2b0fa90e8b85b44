// events.jsonl: what happened in a run and when (started, resumed, checkpoint written, step skipped,
// stopped), one JSON object a line with at least "time" (UTC, ISO 8601 with milliseconds) and "event".
// The events are described in docs/run-folder.md.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "telemetry/json_lines.h"

namespace sauropod::telemetry {

class Journal {
 public:
  // Appends to what is there; a torn last line is dropped.
  explicit Journal(const std::filesystem::path& path) : lines_(path) {}

  // Thread-safe. `fields` is an object without "time" and "event".
  void event(std::string_view name, const nlohmann::json& fields);
  void event(std::string_view name);

 private:
  JsonLines lines_;
};

// The time now as the journal writes it: "2026-02-03T04:05:06.789Z".
std::string utc_now();

}  // namespace sauropod::telemetry

// metrics.jsonl: one JSON object per training step. The keys are described in docs/run-folder.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "telemetry/json_lines.h"

namespace sauropod::telemetry {

class MetricsFile {
 public:
  // Lines whose step is above keep_up_to_step are dropped (a resumed run writes them again; -1 drops
  // all), and so is a torn last line.
  explicit MetricsFile(const std::filesystem::path& path,
                       std::optional<int64_t> keep_up_to_step = std::nullopt);

  // `metrics` has a "step". On return the line survives the end of this process, however it comes.
  void append(const nlohmann::json& metrics);

 private:
  JsonLines lines_;
};

}  // namespace sauropod::telemetry

#include "telemetry/metrics.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::telemetry {

MetricsFile::MetricsFile(const std::filesystem::path& path, std::optional<int64_t> keep_up_to_step)
    : lines_(path, [last = keep_up_to_step.value_or(std::numeric_limits<int64_t>::max())](
                       const nlohmann::json& line) {
        const auto step = line.find("step");
        return step != line.end() && step->is_number_integer() && step->get<int64_t>() <= last;
      }) {}

void MetricsFile::append(const nlohmann::json& metrics) {
  SAUROPOD_CHECK(metrics.contains("step") && metrics["step"].is_number_integer());
  lines_.append(metrics);
}

}  // namespace sauropod::telemetry

#include "telemetry/journal.h"

#include <fmt/chrono.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::telemetry {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), milliseconds);
}

void Journal::event(std::string_view name, const nlohmann::json& fields) {
  SAUROPOD_CHECK(fields.is_object() && !fields.contains("time") && !fields.contains("event"));
  nlohmann::json line = fields;
  line["time"] = utc_now();
  line["event"] = name;
  lines_.append(line);
}

void Journal::event(std::string_view name) { event(name, nlohmann::json::object()); }

}  // namespace sauropod::telemetry

// Numbers with units as people write and read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sauropod::base {

// "11.3 MB", decimal units (1 kB = 1000 B).
std::string format_bytes(double bytes);
// "4m 03s", "850 ms", "2h 10m".
std::string format_duration(double seconds);
// "12.4M", "178B" for counts of parameters and tokens.
std::string format_count(double count);

// "8GB", "512 MiB", "1000": bytes. Throws base::Error (usage) that names `what`.
int64_t parse_bytes(std::string_view text, std::string_view what);
// "90s", "15m", "2h", "3d", plain seconds. Throws base::Error (usage) that names `what`.
std::chrono::seconds parse_duration(std::string_view text, std::string_view what);

}  // namespace sauropod::base

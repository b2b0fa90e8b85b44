// The log: lines on standard error with time and level. The least severe level shown is set by
// SAUROPOD_LOG (config/environment.h).
//
//   log::info("packed {} documents", count);
//
// Never log a secret. As a second line of defence, text given to log::hide() is replaced by *** in
// every line. Thread-safe. The one singleton of the program.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sauropod::telemetry::log {

enum class Level { debug, info, warn, error };

// Reads the level from the environment; throws base::Error (usage) when it can't be meant.
void configure();
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view message);

// Keeps a secret (a key, a password) of at least four bytes out of every later line.
void hide(std::string secret);
// The message with every hidden secret replaced.
std::string without_secrets(std::string_view message);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sauropod::telemetry::log

namespace sauropod {
namespace log = telemetry::log;
}

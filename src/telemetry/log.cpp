#include "telemetry/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <vector>

#include "config/environment.h"
#include "telemetry/screen.h"

namespace sauropod::telemetry::log {
namespace {

class ScreenSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    std::string line(buffer.data(), buffer.size());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    Screen& screen = Screen::standard_error();
    if (screen.device().color && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");
      line.insert(message.color_range_start, color(message.level));
    }
    screen.line(line);
  }
  void flush_() override {}

 private:
  static const char* color(spdlog::level::level_enum level) {
    if (level >= spdlog::level::err) return "\x1b[31m";
    if (level == spdlog::level::warn) return "\x1b[33m";
    return level == spdlog::level::debug ? "\x1b[2m" : "\x1b[32m";
  }
};

spdlog::level::level_enum translate(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

spdlog::logger& logger() {
  static spdlog::logger logger = [] {
    spdlog::logger made("sauropod", std::make_shared<ScreenSink>());
    made.set_pattern("%Y-%m-%d %H:%M:%S %^%l%$ %v");
    made.set_level(spdlog::level::info);
    return made;
  }();
  return logger;
}

struct Secrets {
  std::mutex mutex;
  std::vector<std::string> texts;
};

Secrets& secrets() {
  static Secrets instance;
  return instance;
}

}  // namespace

void configure() { logger().set_level(spdlog::level::from_str(config::log_level())); }
void set_level(Level level) { logger().set_level(translate(level)); }
bool enabled(Level level) { return logger().should_log(translate(level)); }

void write(Level level, std::string_view message) {
  logger().log(translate(level), without_secrets(message));
}

void hide(std::string secret) {
  if (secret.size() < 4) return;  // would blot out ordinary text and tell more than it hides
  const std::lock_guard lock(secrets().mutex);
  secrets().texts.push_back(std::move(secret));
}

std::string without_secrets(std::string_view message) {
  std::string result(message);
  const std::lock_guard lock(secrets().mutex);
  for (const std::string& secret : secrets().texts)
    for (size_t at = result.find(secret); at != std::string::npos; at = result.find(secret, at + 3))
      result.replace(at, secret.size(), "***");
  return result;
}

}  // namespace sauropod::telemetry::log

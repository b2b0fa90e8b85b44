#include "config/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "config/nearest.h"

namespace sauropod::config {
namespace {

constexpr std::array kVariables = {
    EnvironmentVariable{"SAUROPOD_LOG", "info",
                        "The least severe messages that are logged: debug, info, warn or error"},
    EnvironmentVariable{"SAUROPOD_PROGRESS", "auto",
                        "How progress is shown: plain (a line now and then), off, or auto: a bar on a "
                        "terminal and plain lines elsewhere"},
    EnvironmentVariable{"SAUROPOD_CPU", "auto",
                        "The newest instructions that kernels on the processor may use: avx512, avx2, "
                        "portable (none beyond the compiler's), or auto: the best it has"},
    EnvironmentVariable{"NO_COLOR", "unset", "When set, messages have no colours"},
    EnvironmentVariable{"LC_ALL, LC_CTYPE, LANG", "unset",
                        "The progress bar is drawn with block characters when the first of these "
                        "that is set names UTF-8, and in ASCII otherwise"},
};

std::string read(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string choice(const char* name, const std::vector<std::string>& choices,
                   const std::string& standard) {
  const std::string value = read(name);
  if (value.empty()) return standard;
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    const auto name_meant = nearest(value, choices);
    base::fail_usage("environment variable {}={}: it must be one of {}{}", name, value,
                     fmt::join(choices, ", "),
                     name_meant ? fmt::format(" (did you mean {}?)", *name_meant) : "");
  }
  return value;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::string log_level() {
  return choice("SAUROPOD_LOG", {"debug", "info", "warn", "error"}, "info");
}

ProgressStyle progress_style() {
  const std::string value = choice("SAUROPOD_PROGRESS", {"auto", "plain", "off"}, "auto");
  if (value == "plain") return ProgressStyle::plain;
  if (value == "off") return ProgressStyle::off;
  return ProgressStyle::automatic;
}

std::string cpu_kernels() {
  return choice("SAUROPOD_CPU", {"auto", "avx512", "avx2", "portable"}, "auto");
}

bool color_allowed() { return read("NO_COLOR").empty(); }

bool utf8_terminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = read(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace sauropod::config

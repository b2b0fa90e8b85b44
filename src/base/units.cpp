#include "base/units.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace sauropod::base {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Parses "<number> <unit>"; returns a negative value when it isn't one.
template <size_t N>
double parse(std::string_view text, const Unit (&units)[N]) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || !std::isfinite(value)) return -1;
  std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : units)
    if (suffix == unit.name) return value * unit.factor;
  return -1;
}

std::string scaled(double value, const char* const* names, int count, const char* separator) {
  int unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < count) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || std::abs(value) >= 99.95 ? 0 : 1;
  return fmt::format("{:.{}f}{}{}", value, digits, separator, names[unit]);
}

}  // namespace

std::string format_bytes(double bytes) {
  static const char* const kNames[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(bytes, kNames, 6, " ");
}

std::string format_count(double count) {
  static const char* const kNames[] = {"", "K", "M", "B", "T"};
  return scaled(count, kNames, 5, "");
}

std::string format_duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole % 86400 / 3600);
}

int64_t parse_bytes(std::string_view text, std::string_view what) {
  static const Unit kUnits[] = {{"", 1},      {"B", 1},          {"kB", 1e3},
                                {"KB", 1e3},  {"MB", 1e6},       {"GB", 1e9},
                                {"TB", 1e12}, {"KiB", 1 << 10},  {"MiB", 1 << 20},
                                {"GiB", 1 << 30}, {"TiB", 1099511627776.0}};
  const double bytes = parse(text, kUnits);
  if (bytes < 0 || bytes >= 9.2e18)
    fail_usage("{}: '{}' is not a size; write a number with B, kB, MB, GB, TB, KiB, MiB or GiB",
               what, text);
  return static_cast<int64_t>(bytes);
}

std::chrono::seconds parse_duration(std::string_view text, std::string_view what) {
  static const Unit kUnits[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  const double seconds = parse(text, kUnits);
  if (seconds < 0 || seconds >= 9.2e15)
    fail_usage("{}: '{}' is not a duration; write a number with s, m, h or d", what, text);
  return std::chrono::seconds(static_cast<int64_t>(seconds));
}

}  // namespace sauropod::base

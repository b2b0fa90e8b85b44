#include "telemetry/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/error.h"
#include "config/environment.h"

namespace sauropod::telemetry {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Trouble with standard error has nowhere to be told: it is let go.
void write_standard_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int standard_error_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

size_t display_columns(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), continues));
}

std::string fit_columns(std::string_view text, size_t columns, bool utf8) {
  if (display_columns(text) <= columns) return std::string(text);
  const std::string_view ellipsis = utf8 ? "…" : "...";
  const size_t mark = display_columns(ellipsis);
  if (columns <= mark) return std::string(columns, '.');
  size_t end = 0;
  for (size_t used = 0; end < text.size(); ++end) {
    if (continues(text[end])) continue;
    if (used == columns - mark) break;
    ++used;
  }
  return std::string(text.substr(0, end)) + std::string(ellipsis);
}

Screen& Screen::standard_error() {
  static Screen screen({.write = write_standard_error,
                        .columns = standard_error_columns,
                        .clock = steady_seconds,
                        .terminal = ::isatty(STDERR_FILENO) == 1,
                        .utf8 = config::utf8_terminal(),
                        .color = ::isatty(STDERR_FILENO) == 1 && config::color_allowed()});
  return screen;
}

void Screen::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::string output = erased();
  output += text;
  output += '\n';
  output += drawn();
  device_.write(output);
}

void Screen::status(std::string_view text) {
  if (!device_.terminal) return;
  const std::lock_guard lock(mutex_);
  std::string output = erased();
  status_ = text;
  output += drawn();
  device_.write(output);
}

// What removes the status from the screen. A terminal made narrower since has wrapped it over several
// rows, the cursor standing in the last.
std::string Screen::erased() const {
  if (drawn_columns_ == 0) return "";
  const auto columns = static_cast<size_t>(std::max(1, device_.columns()));
  const size_t rows_above = (drawn_columns_ - 1) / columns;
  return "\r" + (rows_above ? fmt::format("\x1b[{}A", rows_above) : "") + "\x1b[J";
}

std::string Screen::drawn() {
  // The last column stays free: some terminals move to the next row once it is filled.
  const auto columns = static_cast<size_t>(std::max(2, device_.columns()) - 1);
  const std::string text = fit_columns(status_, columns, device_.utf8);
  drawn_columns_ = display_columns(text);
  return text;
}

}  // namespace sauropod::telemetry

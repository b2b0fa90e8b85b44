// Standard error as people watch it: lines that stay, and on a terminal one status (a progress bar)
// below them that is redrawn in place. The log and progress bars share it, so neither tears the other.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace sauropod::telemetry {

class Screen {
 public:
  struct Device {
    std::function<void(std::string_view)> write;
    std::function<int()> columns;   // asked at each redraw: windows are resized
    std::function<double()> clock;  // seconds, never going back
    bool terminal = false;
    bool utf8 = false;
    bool color = false;
  };
  explicit Screen(Device device) : device_(std::move(device)) {}

  // The process's standard error, as the environment says it is to be used.
  static Screen& standard_error();

  // Prints a line (no newline in `text`) above the status. Thread-safe.
  void line(std::string_view text);
  // Replaces the status, cut to the width of the terminal; empty removes it. Does nothing where there
  // is no terminal. Thread-safe.
  void status(std::string_view text);

  const Device& device() const { return device_; }

 private:
  std::string erased() const;
  std::string drawn();

  const Device device_;
  std::mutex mutex_;
  std::string status_;
  size_t drawn_columns_ = 0;  // how wide the status on the screen was drawn; 0: none is there
};

// Columns that UTF-8 text takes, one per code point.
size_t display_columns(std::string_view text);
// At most `columns` columns of the text; what is cut is replaced by an ellipsis.
std::string fit_columns(std::string_view text, size_t columns, bool utf8);

}  // namespace sauropod::telemetry

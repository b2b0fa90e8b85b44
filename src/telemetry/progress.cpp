#include "telemetry/progress.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "config/environment.h"

namespace sauropod::telemetry {
namespace {

constexpr double kRedraw = 0.1;      // seconds between redraws of the bar
constexpr double kPlain = 10;        // seconds between plain lines
constexpr double kPlainShare = 0.1;  // or this share of the work
constexpr size_t kWidestBar = 30, kNarrowestBar = 8;

std::string draw_bar(double fraction, size_t width, bool utf8) {
  static constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  fraction = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * static_cast<double>(width));
  std::string out;
  for (size_t i = 0; i < filled; ++i) out += utf8 ? "█" : "#";
  size_t used = filled;
  if (utf8 && filled < width) {
    const double rest = fraction * static_cast<double>(width) - static_cast<double>(filled);
    const char* part = kEighths[static_cast<size_t>(rest * 8)];
    out += part;
    used += *part ? 1 : 0;
  }
  for (; used < width; ++used) out += utf8 ? "·" : ".";
  return out;
}

}  // namespace

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

Progress::Progress(std::string title, int64_t total, int64_t start, Screen& screen)
    : title_(std::move(title)), total_(total), start_(start), screen_(screen) {
  const config::ProgressStyle wanted = config::progress_style();
  const bool terminal = screen.device().terminal;
  style_ = wanted == config::ProgressStyle::off                     ? Style::off
           : terminal && wanted == config::ProgressStyle::automatic ? Style::bar
                                                                    : Style::plain;
  began_ = drawn_ = screen.device().clock();
  drawn_at_ = done_ = start;
  if (style_ == Style::bar) screen_.status(bar(began_));
}

Progress::~Progress() {
  if (!finished_ && style_ == Style::bar) screen_.status("");
}

void Progress::update(int64_t done, std::string_view text) {
  if (style_ == Style::off) return;
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  done_ = done;
  const double now = screen_.device().clock();
  const double since = now - drawn_;
  bool due = since >= kRedraw;
  if (style_ == Style::plain) {
    const double patience = std::max(kPlain, (now - began_) / 100);
    const auto share = static_cast<double>(total_) * kPlainShare;
    due = since >= patience ||
          (total_ > 0 && since >= 1 && static_cast<double>(done - drawn_at_) >= share);
  }
  if (!due) return;
  text_ = text;
  drawn_ = now;
  drawn_at_ = done;
  if (style_ == Style::bar) {
    screen_.status(bar(now));
  } else {
    screen_.line(plain(now));
  }
}

void Progress::finish(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (style_ == Style::off) return;
  if (style_ == Style::bar) screen_.status("");
  const double seconds = screen_.device().clock() - began_;
  screen_.line(fmt::format("{}: done in {}{}{}", title_, base::format_duration(seconds),
                           text.empty() ? "" : ", ", text));
}

std::string Progress::remaining(double now) const {
  const int64_t worked = done_ - start_;
  const double elapsed = now - began_;
  if (total_ <= 0 || worked <= 0 || elapsed < 0.5) return "";
  const double seconds = elapsed * static_cast<double>(std::max<int64_t>(0, total_ - done_)) /
                         static_cast<double>(worked);
  return "ETA " + base::format_duration(std::max(1.0, std::round(seconds)));
}

std::string Progress::bar(double now) const {
  const bool utf8 = screen_.device().utf8;
  const auto columns = static_cast<size_t>(std::max(2, screen_.device().columns()) - 1);
  std::string rest;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) rest += "  " + part;
  };
  if (total_ > 0) {
    add(fmt::format("{:3.0f}%", std::floor(100.0 * static_cast<double>(done_) /
                                           static_cast<double>(total_))));
    add(remaining(now));
  } else {
    add(grouped(done_));
    add(base::format_duration(now - began_));
  }
  add(text_);
  if (total_ <= 0) return title_ + rest;
  // The bar takes what the words leave; where that is too little, the words go without it.
  const size_t words = display_columns(title_) + display_columns(rest) + 1;
  if (words + kNarrowestBar > columns) return title_ + rest;
  const size_t width = std::min(kWidestBar, columns - words);
  return title_ + " " +
         draw_bar(static_cast<double>(done_) / static_cast<double>(total_), width, utf8) + rest;
}

std::string Progress::plain(double now) const {
  std::string out = title_ + ": ";
  if (total_ > 0) {
    out += fmt::format("{:.0f}% ({} of {})", std::floor(100.0 * static_cast<double>(done_) /
                                                        static_cast<double>(total_)),
                       grouped(done_), grouped(total_));
  } else {
    out += grouped(done_);
  }
  out += ", " + base::format_duration(now - began_);
  if (const std::string eta = remaining(now); !eta.empty()) out += ", " + eta;
  if (!text_.empty()) out += ", " + text_;
  return out;
}

}  // namespace sauropod::telemetry

// How far long work has come: a bar redrawn in place on a terminal, elsewhere a plain line now and
// then. Goes to standard error; SAUROPOD_PROGRESS chooses (config/environment.h).
//
//   Progress progress("Training", steps);
//   for (…) progress.update(step, fmt::format("loss {:.3f}", loss));
//   progress.finish("loss 2.871");
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "telemetry/screen.h"

namespace sauropod::telemetry {

class Progress {
 public:
  // `total` 0: not known. `start`: what was done before (a resumed run), left out of the estimate of
  // the time that remains.
  Progress(std::string title, int64_t total, int64_t start = 0,
           Screen& screen = Screen::standard_error());
  // Without finish() (an error is on its way) the bar is removed.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough to call for each piece of work: draws at most ten times a second, and plain lines when
  // a tenth of the work or ten seconds have gone by, less often in work of hours. Thread-safe.
  void update(int64_t done, std::string_view text = {});
  // Prints the last line, with how long it took.
  void finish(std::string_view text = {});

 private:
  enum class Style { bar, plain, off };

  std::string bar(double now) const;
  std::string plain(double now) const;
  // "ETA 2m 03s", or empty while there is nothing to tell from.
  std::string remaining(double now) const;

  const std::string title_;
  const int64_t total_;
  const int64_t start_;
  Screen& screen_;
  Style style_;
  std::mutex mutex_;
  double began_;
  double drawn_;           // when the bar or a line was last put out
  int64_t drawn_at_;       // and how much was done then
  int64_t done_;
  std::string text_;
  bool finished_ = false;
};

// "1,234,567"
std::string grouped(int64_t number);

}  // namespace sauropod::telemetry

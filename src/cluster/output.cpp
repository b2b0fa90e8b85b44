#include "cluster/output.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "cluster/message.h"
#include "telemetry/log.h"

namespace sauropod::cluster {
namespace {

constexpr size_t kLastWords = 20;      // lines
constexpr size_t kLongestLine = 1 << 16;

// What is left of a terminal's line: a bar is drawn anew each time, after an "erase".
std::string_view after_erasing(std::string_view text) {
  const size_t last = text.rfind("\x1b[J");
  return last == std::string::npos ? text : text.substr(last);
}

}  // namespace

std::string without_cursor_moves(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') continue;
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      size_t end = i + 2;
      while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
      if (end < text.size() && (text[end] == 'A' || text[end] == 'J' || text[end] == 'K')) {
        i = end;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

Output::Output(int ranks, const std::string& folder, telemetry::Screen& screen, bool bar,
               bool plain_standard_output)
    : ranks_(static_cast<size_t>(ranks)),
      folder_(folder),
      screen_(screen),
      bar_(bar),
      plain_(plain_standard_output) {}

int Output::columns() const { return bar_ ? screen_.device().columns() : 0; }

void Output::begin(int attempt) {
  if (!folder_.empty()) base::make_folders(folder_);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].last_words.clear();
    if (folder_.empty()) continue;
    std::ofstream& file = ranks_[rank].file;
    if (!file.is_open()) {
      const auto path = std::filesystem::path(folder_) / fmt::format("{}.log", rank);
      file.open(path, attempt == 0 ? std::ios::trunc : std::ios::app);
      if (!file) base::fail_errno("write", path.string(), errno);
    }
    if (attempt > 0) write_file(static_cast<int>(rank), fmt::format("---- attempt {} ----\n", attempt));
  }
}

void Output::write_file(int rank, std::string_view bytes) {
  std::ofstream& file = ranks_[rank].file;
  if (!file.is_open()) return;
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.flush();
  if (!file && !std::exchange(file_failed_, true))
    log::warn("the ranks' output can't be written to {}: is the disk full?", folder_);
  file.clear();
}

void Output::add(int rank, bool error, std::string_view bytes) {
  const bool terminal = bar_ && rank == 0 && error;
  if (!terminal) write_file(rank, bytes);
  if (rank == 0 && !error && plain_) {
    write_all(STDOUT_FILENO, bytes);
    return;
  }
  std::string& unfinished = ranks_[rank].unfinished[error];
  unfinished += bytes;
  size_t begin = 0;
  for (size_t end; (end = unfinished.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string text = unfinished.substr(begin, end - begin);
    if (terminal) text = without_cursor_moves(after_erasing(text));
    else if (text.ends_with('\r')) text.pop_back();
    if (terminal) write_file(rank, text + "\n");
    line(rank, error, std::move(text));
  }
  unfinished.erase(0, begin);
  if (terminal) {
    unfinished = std::string(after_erasing(unfinished));
    screen_.status(without_cursor_moves(unfinished));
  } else if (unfinished.size() > kLongestLine) {
    line(rank, error, std::exchange(unfinished, {}));
  }
}

void Output::finish(int rank) {
  for (const bool error : {false, true}) {
    std::string text = std::exchange(ranks_[rank].unfinished[error], {});
    const bool terminal = bar_ && rank == 0 && error;
    if (terminal) {
      screen_.status("");
      text = without_cursor_moves(text);
    }
    if (!text.empty()) line(rank, error, std::move(text));
  }
}

void Output::line(int rank, bool error, std::string text) {
  screen_.line(fmt::format("[{}] {}", rank, text));
  if (!error) return;
  auto& words = ranks_[rank].last_words;
  words.push_back(std::move(text));
  if (words.size() > kLastWords) words.pop_front();
}

}  // namespace sauropod::cluster

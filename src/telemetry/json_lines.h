// Files of one JSON object a line, appended to for the length of a run and read while it goes on.
//
// Each line is handed to the kernel in one write, so a process killed at any moment leaves whole lines;
// a power cut may tear the last one, which opening the file again removes.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>

namespace sauropod::telemetry {

class JsonLines {
 public:
  // Opens or creates the file; of its lines, keeps the whole ones for which keep(line) is true (all,
  // when keep is empty). Throws base::Error.
  explicit JsonLines(std::filesystem::path path,
                     const std::function<bool(const nlohmann::json&)>& keep = {});
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Thread-safe. Numbers that aren't finite become null. Throws base::Error when the line can't be
  // written (the disk is full), and then leaves none of it in the file.
  void append(const nlohmann::json& object);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::mutex mutex_;
  int descriptor_ = -1;
};

// Calls visit for each whole line that is a JSON object, in order; others are passed over. A missing
// file has no lines.
void read_json_lines(const std::filesystem::path& path,
                     const std::function<void(const nlohmann::json&)>& visit);

}  // namespace sauropod::telemetry

#include "telemetry/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace sauropod::telemetry {
namespace {

namespace fs = std::filesystem;

// Calls visit(line with its newline, object) for each whole line holding a JSON object.
void for_each_line(std::string_view text,
                   const std::function<void(std::string_view, const nlohmann::json&)>& visit) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return;  // torn
    const std::string_view line = text.substr(begin, end + 1 - begin);
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) visit(line, object);
    begin = end + 1;
  }
}

void keep_lines(const fs::path& path, const std::function<bool(const nlohmann::json&)>& keep) {
  const base::MappedFile file(path);
  std::string kept;
  size_t prefix = 0;  // bytes at the start of the file that are kept as they are
  for_each_line(file.text(), [&](std::string_view line, const nlohmann::json& object) {
    if (keep && !keep(object)) return;
    if (line.data() == file.text().data() + prefix && kept.empty()) {
      prefix += line.size();
    } else {
      kept += line;
    }
  });
  if (!kept.empty()) {
    base::write_file_atomically(path, std::string(file.text().substr(0, prefix)) + kept);
  } else if (prefix < file.text().size()) {
    if (::truncate(path.c_str(), static_cast<off_t>(prefix)) != 0)
      base::fail_errno("cannot shorten", path, errno);
  }
}

}  // namespace

JsonLines::JsonLines(fs::path path, const std::function<bool(const nlohmann::json&)>& keep)
    : path_(std::move(path)) {
  std::error_code error;
  if (fs::file_size(path_, error) > 0 && !error) keep_lines(path_, keep);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) base::fail_errno("cannot open", path_, errno);
}

JsonLines::~JsonLines() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void JsonLines::append(const nlohmann::json& object) {
  SAUROPOD_CHECK(object.is_object());
  const std::string line =
      object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) base::fail_errno("cannot write", path_, errno);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      // Best effort: a torn line would only be dropped when the file is next opened.
      [[maybe_unused]] const int result = ::ftruncate(descriptor_, status.st_size);
      base::fail_errno("cannot write", path_, reason);
    }
    done += static_cast<size_t>(written);
  }
}

void read_json_lines(const fs::path& path,
                     const std::function<void(const nlohmann::json&)>& visit) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  const base::MappedFile file(path);
  for_each_line(file.text(),
                [&](std::string_view, const nlohmann::json& object) { visit(object); });
}

}  // namespace sauropod::telemetry

#include "formats/documents.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "formats/json_field.h"

namespace sauropod::formats {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 18;

bool take_ending(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

InputFile describe(const fs::path& path) {
  InputFile input;
  input.path = path.string();
  const std::string file_name = path.filename().string();
  std::string_view name = file_name;
  if (take_ending(name, ".gz")) {
    input.compression = Compression::gzip;
  } else if (take_ending(name, ".zst")) {
    input.compression = Compression::zstd;
  }
  input.json_lines = take_ending(name, ".jsonl") || take_ending(name, ".ndjson");
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    const auto size = fs::file_size(path, error);
    if (!error) input.size = static_cast<int64_t>(size);
  }
  return input;
}

// Adds the files below `folder`; `above` holds the real paths of the folders on the way here, so
// that a link back to one of them ends.
void walk(const fs::path& folder, std::vector<fs::path>& above, std::vector<fs::path>& found) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) base::fail_errno("cannot open the folder", folder, error.value());
  if (std::find(above.begin(), above.end(), real) != above.end()) return;
  above.push_back(real);
  fs::directory_iterator entries(folder, error);
  if (error) base::fail_errno("cannot open the folder", folder, error.value());
  while (entries != fs::directory_iterator()) {
    const fs::directory_entry entry = *entries;
    if (entry.path().filename().native().front() != '.') {
      std::error_code ignored;  // a dangling link is neither file nor folder
      if (entry.is_directory(ignored)) {
        walk(entry.path(), above, found);
      } else if (entry.is_regular_file(ignored)) {
        found.push_back(entry.path());
      }
    }
    entries.increment(error);
    if (error) base::fail_errno("cannot read the folder", folder, error.value());
  }
  above.pop_back();
}

void read_plain(const InputFile& input, ByteSource& source,
                const std::function<void(std::string_view, std::string_view)>& receive) {
  std::string text;
  if (input.size > 0 && input.compression == Compression::none)
    text.reserve(static_cast<size_t>(input.size) + 1);
  size_t filled = 0;
  while (true) {
    text.resize(std::max(text.capacity(), filled + kChunk));
    const size_t got = source.read(text.data() + filled, text.size() - filled);
    if (got == 0) break;
    filled += got;
  }
  receive(input.path, std::string_view(text).substr(0, filled));
}

void read_json_lines(const InputFile& input, ByteSource& source, const std::string& field,
                     const std::function<void(std::string_view, std::string_view)>& receive) {
  std::string pending, text, name;
  uint64_t number = 0;
  const auto take_line = [&](std::string_view line) {
    ++number;
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const std::string complaint = read_json_field(line, field, text);
    if (!complaint.empty())
      base::fail_usage(
          "{}:{}: the line {}; each line of a JSON-lines file is an object with its text in the "
          "field given by --field",
          input.path, number, complaint);
    name = fmt::format("{}:{}", input.path, number);
    receive(name, text);
  };
  std::string chunk(kChunk, '\0');
  while (true) {
    const size_t got = source.read(chunk.data(), chunk.size());
    if (got == 0) break;
    std::string_view rest(chunk.data(), got);
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      if (pending.empty()) {
        take_line(rest.substr(0, end));
      } else {
        pending.append(rest.substr(0, end));
        take_line(pending);
        pending.clear();
      }
      rest.remove_prefix(end + 1);
    }
    pending.append(rest);
  }
  if (!pending.empty()) take_line(pending);
}

}  // namespace

std::vector<InputFile> list_inputs(const std::vector<std::string>& paths) {
  std::vector<InputFile> inputs;
  for (const std::string& path : paths) {
    if (path == "-") {
      inputs.push_back({.path = path});
      continue;
    }
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status))
      base::fail_usage("cannot read {}: there is no such file or folder; check the path", path);
    if (!fs::is_directory(status)) {
      inputs.push_back(describe(path));
      continue;
    }
    std::vector<fs::path> above, found;
    walk(path, above, found);
    if (found.empty())
      base::fail_usage(
          "no text in the folder {}: looked in it and the folders below for files (plain text, "
          ".jsonl or .ndjson, each also as .gz or .zst) whose names do not begin with '.'",
          path);
    std::sort(found.begin(), found.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    for (const fs::path& file : found) inputs.push_back(describe(file));
  }
  return inputs;
}

void read_documents(const InputFile& input, const DocumentOptions& options,
                    const std::function<void(std::string_view, std::string_view)>& receive) {
  const auto source = open_source(input.path, input.compression);
  if (input.json_lines) {
    read_json_lines(input, *source, options.field, receive);
  } else {
    read_plain(input, *source, receive);
  }
}

}  // namespace sauropod::formats

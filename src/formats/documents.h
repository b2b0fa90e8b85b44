// Reading text: files, folders, JSON lines, gzip and zstd, standard input.
//
// What counts as a document is described in docs/data.md: a plain file is one, and so is each line
// of a JSON-lines file. Bytes pass through unchanged: nothing is decoded, normalised or left out,
// so invalid UTF-8 and binary files survive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/byte_source.h"

namespace sauropod::formats {

struct InputFile {
  std::string path;  // as found: the argument, or folder/relative/name; "-" is standard input
  bool json_lines = false;
  Compression compression = Compression::none;
  int64_t size = -1;  // bytes in the file as it lies there; -1 for pipes and standard input

  bool operator==(const InputFile&) const = default;
};

struct DocumentOptions {
  std::string field = "text";  // JSON lines: the key that holds the text
};

// The files that `paths` stand for, in the order given; the files below a folder are sorted by the
// bytes of their paths. Names that begin with '.' are skipped inside folders, symbolic links are
// followed (not in circles), and what is neither file nor folder is skipped there. The ending
// decides how a file is read: .jsonl or .ndjson is JSON lines, and .gz or .zst behind that, or
// alone, is compressed. Throws base::Error (usage) for a missing path and for a folder without
// files.
std::vector<InputFile> list_inputs(const std::vector<std::string>& paths);

// Calls `receive` once for each document, in order; the views last for the call. `name` is the
// path, with ":line" for JSON lines. Empty documents are passed on; blank lines are not documents.
// Memory is that of one document, and an exception from `receive` ends the reading. Throws
// base::Error with "path:line" for a line that is not an object with a string in the field.
void read_documents(
    const InputFile& input, const DocumentOptions& options,
    const std::function<void(std::string_view name, std::string_view text)>& receive);

}  // namespace sauropod::formats

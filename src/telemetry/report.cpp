#include "telemetry/report.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace sauropod::telemetry {
namespace {

// JSON that may stand within <script>: `<` can't open a tag or a comment there.
std::string script_json(const nlohmann::json& data) {
  const std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string report_page(const nlohmann::json& data) {
  // One pass over the template, so that nothing put in is taken for a placeholder.
  const std::string_view page = report_file("report.html");
  SAUROPOD_CHECK(!page.empty());
  std::string out;
  for (size_t at = 0; at < page.size();) {
    const size_t open = page.find("{{", at);
    out += page.substr(at, open - at);
    if (open == std::string_view::npos) break;
    const size_t close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    if (name == "title") {
      out += escape_html(data.value("title", ""));
    } else if (name == "data") {
      out += script_json(data);
    } else {
      SAUROPOD_CHECK(!report_file(name).empty(), "{}", name);
      out += report_file(name);
    }
    at = close + 2;
  }
  return out;
}

std::filesystem::path write_report(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "report.html";
  base::write_file_atomically(path, report_page(report_data(run)));
  return path;
}

}  // namespace sauropod::telemetry

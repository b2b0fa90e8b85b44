#include "cluster/message.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace sauropod::cluster {

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool send(int descriptor, nlohmann::json fields, std::string_view bytes) {
  if (!bytes.empty()) fields["bytes"] = bytes.size();
  std::string text = fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text += '\n';
  text += bytes;
  return write_all(descriptor, text);
}

bool MessageReader::read_from(int descriptor) {
  char chunk[65536];
  ssize_t n;
  do n = ::read(descriptor, chunk, sizeof(chunk));
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return true;
  if (n <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(n));
  return true;
}

std::optional<std::string> MessageReader::take_line() {
  const size_t end = buffer_.find('\n', begin_);
  if (end == std::string::npos) {
    buffer_.erase(0, std::exchange(begin_, 0));
    return std::nullopt;
  }
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = end + 1;
  return line;
}

std::optional<Message> MessageReader::next() {
  while (!greeted_) {
    const auto line = take_line();
    if (!line) return std::nullopt;
    greeted_ = *line == kGreeting;
    if (!greeted_ && noise_.size() < 10000) noise_ += *line + "\n";
  }
  if (!unfinished_) {
    const auto line = take_line();
    if (!line) return std::nullopt;
    auto fields = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!fields.is_object()) base::fail("not a message: {}", line->substr(0, 200));
    unfinished_ = Message{std::move(fields), {}};
  }
  const size_t size = unfinished_->fields.value("bytes", size_t{0});
  if (buffer_.size() - begin_ < size) return std::nullopt;
  unfinished_->bytes = buffer_.substr(begin_, size);
  begin_ += size;
  return std::exchange(unfinished_, std::nullopt);
}

}  // namespace sauropod::cluster

#include "storage/object_store.h"

#include <algorithm>

namespace sauropod::storage {

void ObjectStore::put(const std::string& key, std::string_view bytes) {
  const auto upload = create(key, bytes.size());
  upload->write(bytes.data(), bytes.size());
  upload->commit();
}

std::string ObjectStore::get(const std::string& key, uint64_t limit) const {
  const std::optional<uint64_t> bytes = size(key);
  if (!bytes)
    throw StoreError(Cause::missing, fmt::format("{} does not exist", describe(key)));
  if (*bytes > limit)
    base::fail("{} has {} bytes, more than the {} allowed here", describe(key), *bytes, limit);
  std::string content(*bytes, '\0');
  read(key, 0, content.size(), content.data());
  return content;
}

void check_key(std::string_view key) {
  size_t begin = 0;
  bool good = true;
  while (good) {
    const size_t slash = std::min(key.find('/', begin), key.size());
    const std::string_view part = key.substr(begin, slash - begin);
    good = !part.empty() && part != "." && part != ".." &&
           std::none_of(part.begin(), part.end(),
                        [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (slash == key.size()) break;
    begin = slash + 1;
  }
  if (!good) base::fail("\"{}\" can't be the name of an object", key);
}

}  // namespace sauropod::storage

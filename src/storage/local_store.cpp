#include "storage/local_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/file.h"

namespace sauropod::storage {
namespace {

namespace fs = std::filesystem;

Cause cause_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return Cause::missing;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Cause::no_space;
    case EROFS:
    case EACCES:
    case EPERM:
      return Cause::read_only;
    case EIO:
    case EBADMSG:
    case EUCLEAN:
      return Cause::damaged;
    default:
      return Cause::unavailable;
  }
}

[[noreturn]] void fail(const char* action, const fs::path& path, int error_number) {
  try {
    base::fail_errno(action, path, error_number);
  } catch (const base::Error& error) {
    throw StoreError(cause_of(error_number), error.what());
  }
}

// Runs what may throw base::SystemError, giving the error its cause.
template <typename Work>
auto typed(Work&& work) {
  try {
    return work();
  } catch (const base::SystemError& error) {
    throw StoreError(cause_of(error.error_number()), error.what());
  }
}

// Makes the folder and its parents, each flushed into its own parent.
void make_durable_folders(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  const fs::path parent = folder.parent_path();
  make_durable_folders(parent);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    fail("cannot create the folder", folder, errno);
  base::sync_folder(parent.empty() ? fs::path(".") : parent);
}

bool is_temporary(const std::string& name) {
  const size_t mark = name.rfind(".tmp-");
  if (mark == std::string::npos) return false;
  const std::string_view numbers = std::string_view(name).substr(mark + 5);
  return !numbers.empty() && numbers.find_first_not_of("0123456789-") == std::string_view::npos;
}

class LocalUpload : public Upload {
 public:
  explicit LocalUpload(const fs::path& path) : file_(path) {}
  void write(const void* data, size_t size) override {
    typed([&] { file_.write(data, size); });
  }
  void commit() override {
    typed([&] { file_.commit(); });
  }

 private:
  base::AtomicFile file_;
};

// Calls visit(path, key) for every file whose key begins with `prefix`, temporaries included, and for
// every folder under it after its content, with a '/' at the end of the key. What vanishes meanwhile
// is skipped.
void walk(const fs::path& folder, const std::string& key, const std::string& prefix,
          const std::function<void(const fs::path&, const std::string&)>& visit) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    if (cause_of(error.value()) == Cause::missing) return;
    fail("cannot list", folder, error.value());
  }
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = key + entries->path().filename().string();
    const bool is_folder = entries->is_directory(error);
    const std::string folder_key = name + "/";
    if (is_folder) {
      const size_t common = std::min(folder_key.size(), prefix.size());
      if (folder_key.compare(0, common, prefix, 0, common) == 0)
        walk(entries->path(), folder_key, prefix, visit);
      if (folder_key.starts_with(prefix)) visit(entries->path(), folder_key);
    } else if (name.starts_with(prefix)) {
      visit(entries->path(), name);
    }
  }
  if (error) fail("cannot list", folder, error.value());
}

}  // namespace

LocalStore::LocalStore(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) folder_ = ".";
  if (!folder_.has_filename() && folder_.has_parent_path() && folder_ != folder_.root_path())
    folder_ = folder_.parent_path();  // "runs/" is "runs"
}

fs::path LocalStore::path_of(const std::string& key) const {
  check_key(key);
  return folder_ / key;
}

std::string LocalStore::describe(const std::string& key) const {
  return key.empty() ? folder_.string() : (folder_ / key).string();
}

std::unique_ptr<Upload> LocalStore::create(const std::string& key, uint64_t size) {
  const fs::path path = path_of(key);
  return typed([&] {
    make_durable_folders(path.parent_path());
    return std::make_unique<LocalUpload>(path);
  });
}

void LocalStore::read(const std::string& key, uint64_t offset, size_t size, void* out) const {
  const fs::path path = path_of(key);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open", path, errno);
  char* target = static_cast<char*>(out);
  int error_number = 0;
  while (size > 0) {
    const ssize_t got = ::pread(descriptor, target, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      error_number = got < 0 ? errno : 0;
      break;
    }
    target += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  ::close(descriptor);
  if (size == 0) return;
  if (error_number != 0) fail("cannot read", path, error_number);
  throw StoreError(Cause::missing,
                   fmt::format("{} is cut short: it ends at byte {}, {} bytes before the end of the "
                               "part to be read",
                               path.string(), offset, size));
}

std::vector<ObjectInfo> LocalStore::list(const std::string& prefix) const {
  std::vector<ObjectInfo> objects;
  walk(folder_, "", prefix, [&](const fs::path& path, const std::string& key) {
    struct stat status {};
    if (key.ends_with('/') || is_temporary(path.filename().string()) || ::stat(path.c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode))
      return;
    objects.push_back({key, static_cast<uint64_t>(status.st_size)});
  });
  std::sort(objects.begin(), objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.key < b.key; });
  return objects;
}

std::optional<uint64_t> LocalStore::size(const std::string& key) const {
  const fs::path path = path_of(key);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (cause_of(errno) == Cause::missing) return std::nullopt;
    fail("cannot read", path, errno);
  }
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(status.st_size);
}

void LocalStore::remove(const std::string& key) { remove_file(path_of(key)); }

void LocalStore::remove_file(const fs::path& path) {
  const bool removed = ::unlink(path.c_str()) == 0;
  if (!removed && cause_of(errno) != Cause::missing) fail("cannot remove", path, errno);
  fs::path parent = path.parent_path();
  // rmdir refuses folders that still hold something, which ends the climb.
  while (parent != folder_ && ::rmdir(parent.c_str()) == 0) parent = parent.parent_path();
  while (removed) {
    try {
      return base::sync_folder(parent);
    } catch (const base::SystemError& error) {
      const Cause cause = cause_of(error.error_number());
      // Another process that removes files here too has removed the folder: its parent counts.
      if (cause != Cause::missing || parent == folder_) throw StoreError(cause, error.what());
      parent = parent.parent_path();
    }
  }
}

void LocalStore::remove_unfinished(const std::string& prefix) {
  std::vector<fs::path> files, folders;
  walk(folder_, "", prefix, [&](const fs::path& path, const std::string& key) {
    if (key.ends_with('/'))
      folders.push_back(path);
    else if (is_temporary(path.filename().string()))
      files.push_back(path);
  });
  for (const fs::path& path : files) remove_file(path);
  for (const fs::path& path : folders) ::rmdir(path.c_str());  // only those that are empty
}

}  // namespace sauropod::storage

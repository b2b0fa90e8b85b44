#include "base/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace sauropod::base {

FolderLock::FolderLock(const std::filesystem::path& folder, const char* doing) {
  const std::filesystem::path path = folder / ".lock-run";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_errno("cannot write", path, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int error_number = errno;
  ::close(descriptor_);
  if (error_number == EWOULDBLOCK)
    fail("another process is {} in {}: wait for it, or choose another folder", doing,
         folder.string());
  fail_errno("cannot lock", path, error_number);
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace sauropod::base

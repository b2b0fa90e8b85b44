#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace sauropod::base {
namespace {

const char* remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "; the disk is full: free space or choose another folder";
    case EDQUOT:
      return "; the disk quota is used up: free space or choose another folder";
    case EROFS:
      return "; the file system is read-only: choose another folder";
    case EACCES:
    case EPERM:
      return "; check the permissions of the folder, or choose another one";
    case ENOENT:
      return "; check the path";
    default:
      return "";
  }
}

}  // namespace

void fail_errno(const char* action, const std::string& path, int error_number) {
  throw SystemError(fmt::format("{} {}: {}{}", action, path, std::strerror(error_number),
                                remedy(error_number)),
                    error_number);
}

void report_bug(const char* condition, const char* file, int line, const std::string& detail) {
  throw Bug(fmt::format("{}:{}: `{}` does not hold{}{}", file, line, condition,
                        detail.empty() ? "" : ": ", detail));
}

}  // namespace sauropod::base

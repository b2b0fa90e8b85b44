// One process at a time in a folder.
#pragma once

#include <filesystem>

namespace sauropod::base {

// Holds an advisory lock (flock) on folder/.lock for its life; the kernel lets go of it when the process
// ends, however it ends. Throws Error when another process has it: `doing` says what it is for.
class FolderLock {
 public:
  FolderLock(const std::filesystem::path& folder, const char* doing);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace sauropod::base

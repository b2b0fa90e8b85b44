// A local folder as an ObjectStore: an object is a file at folder/key.
//
// Objects are written through base::AtomicFile (temporary file, flush, rename, flush of the folder);
// folders made on the way are flushed into their parents. Folders that removing leaves empty are
// removed too. Files named like AtomicFile's temporaries (*.tmp-N-N) are unfinished uploads.
#pragma once

#include <filesystem>

#include "storage/object_store.h"

namespace sauropod::storage {

class LocalStore : public ObjectStore {
 public:
  // The folder need not exist: the first object makes it.
  explicit LocalStore(std::filesystem::path folder);

  std::unique_ptr<Upload> create(const std::string& key, uint64_t size) override;
  void read(const std::string& key, uint64_t offset, size_t size, void* out) const override;
  std::vector<ObjectInfo> list(const std::string& prefix) const override;
  std::optional<uint64_t> size(const std::string& key) const override;
  void remove(const std::string& key) override;
  void remove_unfinished(const std::string& prefix) override;
  std::string describe(const std::string& key) const override;

 private:
  std::filesystem::path path_of(const std::string& key) const;
  void remove_file(const std::filesystem::path& path);

  std::filesystem::path folder_;
};

}  // namespace sauropod::storage

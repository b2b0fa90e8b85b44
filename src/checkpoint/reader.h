// Reading checkpoints: any box of any tensor, whatever boxes it was stored in.
//
// A stored box is trusted once its bytes have had the hash in the manifest. read() verifies each box
// that it touches the first time; a Reader made with Check::hashes has verified everything before.
// Damage is a DamageError that names the file and the byte range.
//
// Threads: all const functions may be called from any thread. Copies share what has been verified.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "storage/object_store.h"

namespace sauropod::checkpoint {

enum class Check {
  sizes,   // the manifest is whole, all files exist and have their sizes
  hashes,  // and every byte is as it was written (reads everything, with several threads)
};

class Reader {
 public:
  // The checkpoint of the largest step that passes the check, for a process by itself; several ranks
  // use load_newest() (newest.h). What is passed over, and why, is appended to `complaints`. Nothing
  // when the store holds no intact checkpoint; throws storage::StoreError when the store itself can't
  // be read. The store must outlive the Reader.
  static std::optional<Reader> newest_intact(const storage::ObjectStore& store,
                                             std::vector<std::string>* complaints = nullptr,
                                             Check check = Check::hashes);
  // Opens a path a person gave: the folder of one checkpoint, a folder of checkpoints, or the output
  // folder of a run with "checkpoints" in it (of the last two, the newest intact one). Throws
  // base::Error when there is none.
  static Reader open(const std::string& path, std::vector<std::string>* complaints = nullptr,
                     Check check = Check::hashes);

  Reader(const storage::ObjectStore& store, int64_t step, Check check = Check::sizes);
  // The checkpoint under a prefix that ends in '/', or the whole store with "".
  Reader(const storage::ObjectStore& store, const std::string& prefix, Check check = Check::sizes);
  Reader(std::shared_ptr<const storage::ObjectStore> store, const std::string& prefix,
         Check check = Check::sizes);
  // One whose manifest was read and checked already.
  Reader(std::shared_ptr<const storage::ObjectStore> store, const std::string& prefix,
         Manifest manifest);

  const Manifest& manifest() const;
  std::string path() const;  // what messages call the checkpoint
  bool has(const std::string& parameter, const std::string& kind) const;

  // Fills `out`, contiguous and row-major, with the elements [offset, offset + shape) of a tensor,
  // converted to `dtype`.
  void read(const std::string& parameter, const std::string& kind, const std::string& dtype,
            const Dimensions& offset, const Dimensions& shape, void* out) const;
  // The exact bytes of the tokenizer file.
  std::string tokenizer_file() const;

  // Reads everything and says what is damaged, in the order of files and bytes.
  std::vector<std::string> damages() const;
  void verify() const;  // throws DamageError with the first of damages()

 private:
  struct State;
  struct Part;
  void read_part(const StoredTensor& tensor, size_t box_index, const Part& part) const;
  void check_hash(const StoredTensor& tensor, size_t box_index, const void* bytes) const;

  std::shared_ptr<State> state_;
};

}  // namespace sauropod::checkpoint

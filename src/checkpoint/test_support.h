// What the tests of this room share: a temporary folder and snapshots with known content.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/snapshot.h"

namespace sauropod::checkpoint {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    // In memory where that is possible: these tests flush thousands of small files.
    std::string pattern = "/dev/shm/sauropod-checkpoint-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      pattern = (std::filesystem::temp_directory_path() / "sauropod-checkpoint-XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) base::fail("cannot make a folder for the test");
    }
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Element i of a tensor at a step: any thread or process can say what it has to be.
inline float element_of(const std::string& parameter, const std::string& kind, int64_t step,
                        int64_t index) {
  return static_cast<float>(base::random_normal(
      base::random_key(static_cast<uint64_t>(step), parameter + "/" + kind),
      static_cast<uint64_t>(index)));
}

inline std::vector<float> tensor_of(const std::string& parameter, const std::string& kind,
                                    int64_t step, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i)
    values[static_cast<size_t>(i)] = element_of(parameter, kind, step, i);
  return values;
}

struct TestTensor {
  std::string parameter;
  std::vector<int64_t> shape;
};

inline const std::vector<TestTensor>& test_tensors() {
  static const std::vector<TestTensor> tensors{
      {"weight", {24, 10}}, {"bias", {17}}, {"cube", {3, 4, 5}}, {"scalar", {}}};
  return tensors;
}

inline int64_t size_of(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t dimension : shape) size *= dimension;
  return size;
}

// Every test tensor in every kind, each as one box of F32.
inline Snapshot make_snapshot(int64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.training = {{"step", step}, {"tokens", step * 1000}, {"loss", 0.1 * double(step)}};
  snapshot.model = {{"family", "jurassic"}, {"layers", 2}};
  snapshot.tokenizer_file = "{\"a tokenizer\": \"\\u00e9\"}\n";
  auto values = std::make_shared<std::vector<std::vector<float>>>();
  for (const char* kind : {"master", "moment1", "moment2"})
    for (const TestTensor& tensor : test_tensors()) {
      values->push_back(tensor_of(tensor.parameter, kind, step, size_of(tensor.shape)));
      snapshot.boxes.push_back({tensor.parameter, kind, "F32", tensor.shape,
                                std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape,
                                values->back().data()});
    }
  snapshot.owner = values;
  return snapshot;
}

}  // namespace sauropod::checkpoint

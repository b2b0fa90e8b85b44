// What a rank of a training loop hands to the checkpoint writer: its part of the state at one step.
// Training state, model and tokenizer are taken from rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sauropod::checkpoint {

// A part of one full tensor: the elements [offset, offset + shape) in every dimension.
struct Box {
  std::string parameter;            // a name from the parameter table
  std::string kind;                 // "master", "moment1", "moment2"
  std::string dtype;                // "F32", "F64", "BF16"
  std::vector<int64_t> full_shape;  // of the whole tensor; [] is a single number
  std::vector<int64_t> offset;      // as many entries as full_shape
  std::vector<int64_t> shape;
  const void* data = nullptr;       // the box, contiguous and row-major
};

struct Snapshot {
  int64_t step = 0;
  nlohmann::json training;     // whatever resuming needs; numbers in it must be finite
  nlohmann::json model;        // the resolved ModelOptions
  std::string tokenizer_file;  // the exact bytes
  std::vector<Box> boxes;      // over all ranks, those of one (parameter, kind) tile its full shape
  std::shared_ptr<const void> owner;  // keeps the data alive until the snapshot is written
};

}  // namespace sauropod::checkpoint

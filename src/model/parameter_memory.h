// The parameters of a model in memory: flat buffers in the order of the table.
//
// There is one buffer of the weights that the computation reads (float, double for tests, or bf16) and,
// for training, one of the gradients (float, or double). The master copy, which the optimizer updates, is
// the weights themselves, or in bf16 a float whose upper half, rounded, is the weight, and whose lower
// half has a buffer of its own (ops/adamw.h) for the elements that this process updates. Parameters begin at
// multiples of 64 bytes of float, except that those of one group lie back to back, so that a group is one
// matrix. Not thread-safe while being written.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "ops/weight.h"

namespace sauropod::model {

enum class Precision { fp32, bf16, fp64 };

Precision parse_precision(std::string_view name);
std::string_view precision_name(Precision precision);

// Elements [begin, end) of the flat buffers, and where they begin in a buffer that has only such pieces, one
// after the other.
struct Piece {
  int64_t begin = 0, end = 0;
  int64_t state = 0;
  int64_t size() const { return end - begin; }
};

class ParameterMemory {
 public:
  // Memory is not initialised. device: cpu, cuda, or meta (shapes only).
  ParameterMemory(std::vector<Parameter> table, Precision precision, at::Device device,
                  bool gradients);

  const std::vector<Parameter>& table() const { return table_; }
  Precision precision() const { return precision_; }
  at::Device device() const { return weights_.device(); }

  // The weight of one parameter, or of a whole group ([sum of rows, columns], or [sum] for biases).
  // Undefined for a name that is neither.
  ops::Weight weight(std::string_view name) const;
  // Where a parameter begins in the flat buffers, in elements, and whether it follows the one before it in a
  // group.
  int64_t offset(size_t index) const { return offsets_[index]; }
  bool continues_group(size_t index) const;
  // A parameter's part of any flat buffer laid out like this one, in its shape.
  at::Tensor view(const at::Tensor& flat, size_t index) const;

  const at::Tensor& weights() const { return weights_; }
  // The lower halves of the master copy, int16; undefined unless bf16 and kept.
  const at::Tensor& low() const { return low_; }
  const at::Tensor& gradients() const { return gradients_; }  // undefined without
  int64_t flat_size() const { return flat_size_; }

  at::ScalarType master_type() const;  // float or double
  // In bf16, keeps the lower halves of these elements of the master copy from now on (an optimizer calls it for
  // those that it updates); before any values are set.
  void keep_lower_halves(std::vector<Piece> pieces);
  // A copy of the master copy's elements [begin, end), on the CPU; on the meta device of that shape. Where the
  // lower halves are not kept, of the weights.
  at::Tensor copy_master(int64_t begin, int64_t end) const;
  // Calls `fill` with memory for one parameter in the master's type, row-major, and makes what it wrote
  // the master copy. Gradients of the parameter are set to zero.
  void fill_master(size_t index, const std::function<void(void*)>& fill);

  // Elements [begin, end) of the flat buffers where every parameter takes weight decay, or none does.
  struct Range {
    int64_t begin, end;
    bool decay;
  };
  const std::vector<Range>& ranges() const { return ranges_; }

  // Fills the master copy from the counter-based generator keyed by (seed, name, element), so that it
  // does not depend on layout or threads.
  void initialize(uint64_t seed);

 private:
  struct Slot {
    int64_t offset;
    std::vector<int64_t> shape;
  };
  ops::Weight slot_weight(const Slot& slot) const;
  std::vector<Piece> kept_in(int64_t begin, int64_t end) const;

  std::vector<Parameter> table_;
  Precision precision_;
  std::vector<int64_t> offsets_;  // of each parameter, in elements
  std::map<std::string, Slot, std::less<>> slots_;  // parameters and groups by name
  std::vector<Range> ranges_;
  int64_t flat_size_ = 0;
  std::vector<Piece> kept_;  // whose lower halves are in low_
  at::Tensor weights_, low_, gradients_;
};

}  // namespace sauropod::model

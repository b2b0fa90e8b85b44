// The parameters that one rank holds: the parts of the table that its stage and its place in the tensor
// group call for.
//
// Matrices split by rows or columns are cut into equal parts; vocabularies into parts of ⌈V / size⌉ rows,
// the last of which may be shorter, so that no row is padding. Everything else is held by every
// tensor-parallel rank. Stages hold their layers; the tied embedding is held by the first and the last.
#pragma once

#include <vector>

#include "comm/mesh.h"
#include "model/transformer.h"
#include "parallel/options.h"

namespace sauropod::parallel {

struct Held {
  bool counted = true;      // this copy counts in norms and is the one that checkpoints save
  bool partial = false;     // the gradient is to be summed over the tensor group
  bool tied = false;        // held by the first and the last stage; gradients to be summed over both
};

struct Placement {
  std::vector<model::Span> spans;       // of this rank's chunks
  std::vector<int64_t> chunks;          // their numbers in the model
  std::vector<model::Parameter> table;  // parts, in the order of the full table
  std::vector<Held> held;               // of each of them
  int64_t first_item = 0;               // of the vocabulary
};

Placement place(const model::ModelOptions& model, const ParallelOptions& options,
                const comm::Layout& layout, const comm::Coordinates& at);

}  // namespace sauropod::parallel

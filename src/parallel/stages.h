// Which layers each stage of the pipeline holds.
#pragma once

#include <cstdint>
#include <vector>

#include "model/transformer.h"
#include "parallel/options.h"

namespace sauropod::parallel {

// The chunks of a model in its order, pipeline · virtual_stages of them; chunk c lies on stage
// c mod pipeline (interleaving: Narayanan et al., 2021). By parallel.stage_layers, or balanced: the
// largest chunk as small as it can be, where the output layer counts as the layers whose arithmetic it
// equals (1.6 in J1-Jumbo), and earlier stages, which keep more microbatches' activations, get no more
// than later ones.
std::vector<model::Span> chunk_spans(const ParallelOptions& options,
                                     const model::ModelOptions& model);

// The output layer's arithmetic in layers.
double head_in_layers(const model::ModelOptions& model);

}  // namespace sauropod::parallel

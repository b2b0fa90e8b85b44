#include "parallel/stages.h"

#include <algorithm>

#include "base/error.h"

namespace sauropod::parallel {
namespace {

std::vector<int64_t> balanced(int64_t layers, int64_t chunks, double head) {
  if (chunks == 1) return {layers};
  std::vector<int64_t> best;
  double best_cost = 0;
  for (int64_t last = 1; last <= layers - (chunks - 1); ++last) {
    const int64_t rest = layers - last, others = chunks - 1;
    const int64_t largest = (rest + others - 1) / others;
    const double cost = std::max(static_cast<double>(largest), static_cast<double>(last) + head);
    // Of equally good ones the one with the fuller last chunk, which leaves less to the others.
    if (!best.empty() && cost > best_cost) continue;
    best_cost = cost;
    best.clear();
    for (int64_t i = 0; i < others; ++i) best.push_back(rest / others + (i >= others - rest % others));
    best.push_back(last);
  }
  return best;
}

}  // namespace

double head_in_layers(const model::ModelOptions& m) {
  const int64_t mixed = m.heads * m.head_size, kv = m.kv_heads * m.head_size;
  const int64_t matrices = m.hidden * (2 * mixed + 2 * kv) +
                           m.hidden * m.mlp_hidden * (m.family == "llama" ? 3 : 2);
  const double attention = static_cast<double>(mixed) * static_cast<double>(m.context);
  return static_cast<double>(m.vocabulary * m.hidden) / (static_cast<double>(matrices) + attention);
}

std::vector<model::Span> chunk_spans(const ParallelOptions& options,
                                     const model::ModelOptions& model) {
  const int64_t chunks = options.pipeline * options.virtual_stages;
  SAUROPOD_CHECK(chunks >= 1 && chunks <= model.layers);
  const std::vector<int64_t> layers =
      options.stage_layers.empty() ? balanced(model.layers, chunks, head_in_layers(model))
                                   : options.stage_layers;
  std::vector<model::Span> spans;
  int64_t begin = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t end = begin + layers[static_cast<size_t>(chunk)];
    spans.push_back({begin, end, chunk == 0, chunk == chunks - 1});
    begin = end;
  }
  return spans;
}

}  // namespace sauropod::parallel

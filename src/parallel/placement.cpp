#include "parallel/placement.h"

#include <algorithm>

#include "base/error.h"
#include "parallel/stages.h"

namespace sauropod::parallel {
namespace {

bool on_stage(const std::vector<model::Span>& spans, const model::Parameter& parameter,
              int64_t layers, bool tied) {
  for (const model::Span& span : spans) {
    if (parameter.layer >= 0 && parameter.layer < layers) {
      if (parameter.layer >= span.begin && parameter.layer < span.end) return true;
    } else if (parameter.layer < 0) {
      const bool shared = tied && parameter.split == model::Split::vocabulary;
      if (span.embedding || (shared && span.head)) return true;
    } else if (span.head) {
      return true;
    }
  }
  return false;
}

model::Parameter part_for(const model::Parameter& parameter, int64_t size, int64_t rank) {
  if (size == 1 || parameter.split == model::Split::none) return parameter;
  const size_t dimension = parameter.split == model::Split::columns ? 1 : 0;
  const int64_t extent = parameter.shape[dimension];
  const int64_t share = (extent + size - 1) / size;
  SAUROPOD_CHECK(parameter.split == model::Split::vocabulary || extent % size == 0, "{}",
                 parameter.name);
  const int64_t begin = std::min(extent, rank * share);
  return model::part_of(parameter, dimension, begin, std::min(extent, begin + share) - begin);
}

}  // namespace

Placement place(const model::ModelOptions& model, const ParallelOptions& options,
                const comm::Layout& layout, const comm::Coordinates& at) {
  Placement result;
  const std::vector<model::Span> all = chunk_spans(options, model);
  for (size_t chunk = static_cast<size_t>(at.pipeline); chunk < all.size();
       chunk += static_cast<size_t>(layout.pipeline)) {
    result.spans.push_back(all[chunk]);
    result.chunks.push_back(static_cast<int64_t>(chunk));
  }
  for (const model::Parameter& parameter : model::parameter_table(model)) {
    if (!on_stage(result.spans, parameter, model.layers, model.tied_embeddings)) continue;
    Held held;
    held.tied = model.tied_embeddings && layout.pipeline > 1 && parameter.layer < 0 &&
                parameter.split == model::Split::vocabulary;
    const bool whole = parameter.split == model::Split::none;
    held.counted = (at.tensor == 0 || !whole) && !(held.tied && at.pipeline > 0);
    // Ranks that compute the same from the same tokens have the same gradient. With tokens divided each
    // has its tokens' part; and what only the first rank adds has no gradient on the others.
    held.partial = layout.tensor > 1 && whole && (options.sequence || parameter.once);
    result.table.push_back(part_for(parameter, layout.tensor, at.tensor));
    result.held.push_back(held);
  }
  const int64_t share = (model.vocabulary + layout.tensor - 1) / layout.tensor;
  result.first_item = std::min<int64_t>(model.vocabulary, at.tensor * share);
  return result;
}

}  // namespace sauropod::parallel

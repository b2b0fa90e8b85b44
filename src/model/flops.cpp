#include "model/flops.h"

namespace sauropod::model {

double training_flops_per_token(const ModelOptions& options, int64_t length) {
  double matrices = 0;
  for (const Parameter& parameter : parameter_table(options)) {
    const bool looked_up = parameter.name == "embedding.position.weight" ||
                           (parameter.name == "embedding.token.weight" && !options.tied_embeddings);
    if (parameter.shape.size() == 2 && !looked_up)
      matrices += static_cast<double>(parameter.size());
  }
  return 6 * matrices + 6.0 * static_cast<double>(options.layers * options.heads *
                                                  options.head_size * length);
}

}  // namespace sauropod::model

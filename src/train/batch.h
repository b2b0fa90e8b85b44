// Batches as tensors.
#pragma once

#include "data/training_data.h"
#include "model/transformer.h"

namespace sauropod::train {

// Samples [first, first + count) of the run's order as one batch on `device`: sequences of one context,
// targets one token ahead. With mask_documents, `first` of the batch tells each token its document's
// beginning; an end-of-document item belongs to the document it ends.
model::Batch make_batch(const data::TrainingData& data, int64_t first, int64_t count,
                        bool mask_documents, int32_t end_of_document, at::Device device);

}  // namespace sauropod::train

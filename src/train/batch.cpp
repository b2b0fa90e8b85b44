#include "train/batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "eval/validation.h"

namespace sauropod::train {

model::Batch make_batch(const data::TrainingData& data, int64_t first, int64_t count,
                        bool mask_documents, int32_t end_of_document, at::Device device) {
  const int64_t length = data.context();
  const auto options = at::TensorOptions().dtype(at::kInt);
  model::Batch batch;
  batch.tokens = at::empty({count, length}, options);
  batch.targets = at::empty({count, length}, options);
  std::vector<int32_t> sample(static_cast<size_t>(length) + 1);
  for (int64_t i = 0; i < count; ++i) {
    data.sample(static_cast<uint64_t>(first + i), sample);
    std::copy_n(sample.begin(), length, batch.tokens.data_ptr<int32_t>() + i * length);
    std::copy_n(sample.begin() + 1, length, batch.targets.data_ptr<int32_t>() + i * length);
  }
  if (mask_documents) batch.first = eval::document_beginnings(batch.tokens, end_of_document);
  batch.tokens = batch.tokens.to(device);
  batch.targets = batch.targets.to(device);
  if (mask_documents) batch.first = batch.first.to(device);
  return batch;
}

}  // namespace sauropod::train

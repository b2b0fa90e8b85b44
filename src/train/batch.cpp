#include "train/batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

namespace sauropod::train {

model::Batch make_batch(const data::TrainingData& data, int64_t first, int64_t count,
                        bool mask_documents, int32_t end_of_document, at::Device device) {
  const int64_t length = data.context();
  const auto options = at::TensorOptions().dtype(at::kInt);
  model::Batch batch;
  batch.tokens = at::empty({count, length}, options);
  batch.targets = at::empty({count, length}, options);
  if (mask_documents) batch.first = at::empty({count, length}, options);
  std::vector<int32_t> sample(static_cast<size_t>(length) + 1);
  for (int64_t i = 0; i < count; ++i) {
    data.sample(static_cast<uint64_t>(first + i), sample);
    std::copy_n(sample.begin(), length, batch.tokens.data_ptr<int32_t>() + i * length);
    std::copy_n(sample.begin() + 1, length, batch.targets.data_ptr<int32_t>() + i * length);
    if (!mask_documents) continue;
    int32_t* beginning = batch.first.data_ptr<int32_t>() + i * length;
    int32_t begins = 0;
    for (int64_t t = 0; t < length; ++t) {
      beginning[t] = begins;
      if (sample[static_cast<size_t>(t)] == end_of_document) begins = static_cast<int32_t>(t) + 1;
    }
  }
  batch.tokens = batch.tokens.to(device);
  batch.targets = batch.targets.to(device);
  if (mask_documents) batch.first = batch.first.to(device);
  return batch;
}

}  // namespace sauropod::train

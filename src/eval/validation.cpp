#include "eval/validation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "base/error.h"

namespace sauropod::eval {

std::vector<int32_t> item_bytes(const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    bytes.push_back(static_cast<int32_t>(tokenizer.bytes_of(id).size()));
  return bytes;
}

at::Tensor document_beginnings(const at::Tensor& tokens, int32_t end_of_document) {
  SAUROPOD_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kInt &&
                 tokens.is_contiguous() && tokens.device().is_cpu());
  const int64_t sequences = tokens.size(0), length = tokens.size(1);
  at::Tensor beginnings = at::empty_like(tokens);
  const int32_t* token = tokens.data_ptr<int32_t>();
  int32_t* beginning = beginnings.data_ptr<int32_t>();
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t begins = 0;
    for (int64_t t = 0; t < length; ++t) {
      *beginning++ = begins;
      if (*token++ == end_of_document) begins = static_cast<int32_t>(t) + 1;
    }
  }
  return beginnings;
}

Score evaluate(const model::Transformer& model, const data::ValidationData& data, int64_t windows,
               int64_t batch_sequences, int32_t end_of_document, bool mask_documents) {
  SAUROPOD_CHECK(data.context() <= model.options().context);
  return evaluate([&](const model::Batch& batch) { return model.loss(batch, {.gradients = false}).nats; },
                  model.device(), data, windows, batch_sequences, end_of_document, mask_documents);
}

Score evaluate(const NatsOf& nats_of, at::Device device, const data::ValidationData& data,
               int64_t windows, int64_t batch_sequences, int32_t end_of_document,
               bool mask_documents) {
  SAUROPOD_CHECK(windows >= 0 && batch_sequences > 0);
  const at::NoGradGuard no_grad;
  const int64_t length = data.context();
  const auto chosen = data.spread(windows == 0 ? data.windows() : windows);
  const auto count = static_cast<int64_t>(chosen.size());
  std::vector<int32_t> ids(static_cast<size_t>(length) + 1);

  Score score;
  for (int64_t begin = 0; begin < count; begin += batch_sequences) {
    const int64_t sequences = std::min(batch_sequences, count - begin);
    model::Batch batch;
    batch.tokens = at::empty({sequences, length}, at::kInt);
    batch.targets = at::empty({sequences, length}, at::kInt);
    for (int64_t i = 0; i < sequences; ++i) {
      const auto window = data.window(chosen[static_cast<size_t>(begin + i)], ids);
      std::copy_n(ids.begin(), length, batch.tokens.data_ptr<int32_t>() + i * length);
      int32_t* targets = batch.targets.data_ptr<int32_t>() + i * length;
      std::copy_n(ids.begin() + 1, window.targets, targets);
      std::fill(targets + window.targets, targets + length, -1);
      score.tokens += window.targets;
      score.bytes += window.bytes;
    }
    if (mask_documents)
      batch.first = document_beginnings(batch.tokens, end_of_document).to(device);
    batch.tokens = batch.tokens.to(device);
    batch.targets = batch.targets.to(device);
    score.nats += nats_of(batch).sum(at::kDouble).item<double>();
  }
  return score;
}

}  // namespace sauropod::eval

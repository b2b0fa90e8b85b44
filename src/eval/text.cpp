#include "eval/text.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"

namespace sauropod::eval {
namespace {

// Windows collected before any is read, in batches: enough to find some of about the same length.
constexpr size_t kPoolBatches = 16;

}  // namespace

TextScorer::TextScorer(const model::Transformer& model, const tokenizer::Tokenizer& tokenizer,
                       int64_t batch_sequences)
    : model_(model), tokenizer_(tokenizer), batch_sequences_(batch_sequences) {
  SAUROPOD_CHECK(batch_sequences > 0 && tokenizer.size() <= model.options().vocabulary);
}

void TextScorer::add(std::string_view document) {
  if (document.empty()) return;
  // Position i of the inputs predicts position i + 1.
  std::vector<int32_t> ids{tokenizer_.end_of_document()};
  tokenizer_.encode(document, ids);
  ids.push_back(tokenizer_.end_of_document());
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += tokenizer_.bytes_of(id).size();
  SAUROPOD_CHECK(bytes == document.size(), "the tokenizer loses bytes");
  ++documents_;
  score_.tokens += static_cast<int64_t>(ids.size()) - 1;
  score_.bytes += static_cast<int64_t>(bytes);

  const auto context = static_cast<size_t>(model_.options().context);
  const size_t inputs = ids.size() - 1;
  size_t counted = 0;
  for (size_t begin = 0; counted < inputs; begin += context / 2) {
    const size_t end = std::min(begin + context, inputs);
    const auto at = [&](size_t position) { return ids.begin() + static_cast<long>(position); };
    pool_.push_back({{at(begin), at(end)}, {at(begin + 1), at(end + 1)}, counted - begin});
    counted = end;
    if (pool_.size() == kPoolBatches * static_cast<size_t>(batch_sequences_)) read_pool();
  }
}

Score TextScorer::finish() {
  read_pool();
  return score_;
}

void TextScorer::read_pool() {
  std::stable_sort(pool_.begin(), pool_.end(), [](const Window& a, const Window& b) {
    return a.tokens.size() > b.tokens.size();
  });
  const auto windows = static_cast<int64_t>(pool_.size());
  for (int64_t begin = 0; begin < windows; begin += batch_sequences_)
    score_.nats += nats_of(pool_.data() + begin, std::min(batch_sequences_, windows - begin));
  pool_.clear();
}

// Shorter windows are filled up on the right, where attention does not look; only the states of counted
// positions go through the output layer.
double TextScorer::nats_of(const Window* windows, int64_t count) const {
  const at::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(windows[0].tokens.size());
  model::Batch batch;
  batch.tokens = at::full({count, length}, tokenizer_.end_of_document(), at::kInt);
  std::vector<int32_t> rows, targets;
  for (int64_t i = 0; i < count; ++i) {
    const Window& window = windows[i];
    std::copy(window.tokens.begin(), window.tokens.end(),
              batch.tokens.data_ptr<int32_t>() + i * length);
    for (size_t t = window.counted_from; t < window.targets.size(); ++t) {
      rows.push_back(static_cast<int32_t>(i * length + static_cast<int64_t>(t)));
      targets.push_back(window.targets[t]);
    }
  }
  batch.tokens = batch.tokens.to(model_.device());
  const at::Tensor states = at::index_select(
      model_.states(batch), 0, at::tensor(rows, at::kInt).to(model_.device()));
  return model_.loss(states, at::tensor(targets, at::kInt).to(model_.device()), {.gradients = false})
      .nats.sum(at::kDouble)
      .item<double>();
}

}  // namespace sauropod::eval

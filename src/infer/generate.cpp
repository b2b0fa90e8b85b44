#include "infer/generate.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sauropod::infer {
namespace {

struct Sequence {
  Sampler sampler;
  Completion completion;
};

}  // namespace

std::string_view finish_name(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
  }
  return "";
}

std::vector<Completion> generate(const Decoder& decoder, std::span<const int32_t> prompt,
                                 const GenerateOptions& options, const OnToken& on_token) {
  const model::ModelOptions& model = decoder.options();
  options.sampling.check();
  if (options.max_tokens < 1)
    base::fail_usage("max-tokens is {}; it must be at least 1", options.max_tokens);
  if (options.choices < 1) base::fail_usage("n is {}; it must be at least 1", options.choices);
  std::vector<int32_t> beginning{options.end_of_document};
  beginning.insert(beginning.end(), prompt.begin(), prompt.end());
  const auto read = static_cast<int64_t>(beginning.size());
  if (read > model.context)
    base::fail_usage("the prompt has {} tokens, but the model's context is {}, with one for the "
                     "beginning of the document: give a shorter prompt",
                     prompt.size(), model.context);
  const auto vocabulary =
      static_cast<size_t>(options.vocabulary == 0 ? model.vocabulary : options.vocabulary);
  SAUROPOD_CHECK(vocabulary <= static_cast<size_t>(model.vocabulary));
  // The last token that is generated need not be read.
  const int64_t limit = std::min(options.max_tokens, model.context - read + 1);

  KeyValueCache cache = decoder.make_cache(options.choices, read + limit - 1);
  std::vector<Sequence> sequences;
  for (int64_t choice = 0; choice < options.choices; ++choice)
    sequences.push_back({Sampler(options.sampling, choice, prompt), {}});

  // Sequences that go on, by choice; each has the slot of its number.
  std::vector<int64_t> active;
  const auto take = [&](int64_t choice, const float* logits) {
    Sequence& sequence = sequences[static_cast<size_t>(choice)];
    auto& tokens = sequence.completion.tokens;
    const int32_t token = sequence.sampler.choose({logits, vocabulary}, tokens.size());
    if (token == options.end_of_document) {
      sequence.completion.finish = Finish::stop;
      return;
    }
    tokens.push_back(token);
    if (on_token) on_token(choice, token);
    if (static_cast<int64_t>(tokens.size()) < limit) active.push_back(choice);
  };
  const auto logits_of = [&](const std::vector<Piece>& pieces) {
    return decoder.next_logits(cache, pieces).to(at::kFloat).contiguous();
  };

  at::Tensor logits = logits_of({{0, beginning}});
  for (int64_t choice = 0; choice < options.choices; ++choice) {
    if (choice > 0) cache.copy(0, choice);
    take(choice, logits.data_ptr<float>());
  }
  while (!active.empty()) {
    std::vector<Piece> pieces;
    for (const int64_t choice : active) {
      const auto& tokens = sequences[static_cast<size_t>(choice)].completion.tokens;
      pieces.push_back({choice, {&tokens.back(), 1}});
    }
    logits = logits_of(pieces);
    const float* row = logits.data_ptr<float>();
    for (const int64_t choice : std::exchange(active, {})) {
      take(choice, row);
      row += model.vocabulary;
    }
  }
  std::vector<Completion> completions;
  for (Sequence& sequence : sequences) completions.push_back(std::move(sequence.completion));
  return completions;
}

}  // namespace sauropod::infer

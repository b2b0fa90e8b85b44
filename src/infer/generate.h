// Continuing a prompt, one or several times.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "infer/decoder.h"
#include "infer/sampler.h"

namespace sauropod::infer {

enum class Finish {
  stop,    // the model ended the document
  length,  // max_tokens were generated, or the context is full
};

std::string_view finish_name(Finish finish);

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = 128;
  int64_t choices = 1;
  // Items that may be chosen, which are those with ids below it; 0: all of the model's.
  int64_t vocabulary = 0;
  int32_t end_of_document = 0;
};

struct Completion {
  std::vector<int32_t> tokens;  // without the end-of-document item
  Finish finish = Finish::length;
};

// Called with each token as it is chosen, but for the end-of-document item.
using OnToken = std::function<void(int64_t choice, int32_t token)>;

// Continues a document that begins with `prompt`, which may be empty: an end-of-document item is read
// before it, as in training. The prompt is read once, whatever the choices. Throws base::Error (usage)
// when it does not fit the context, or options can't be meant.
std::vector<Completion> generate(const Decoder& decoder, std::span<const int32_t> prompt,
                                 const GenerateOptions& options, const OnToken& on_token = {});

}  // namespace sauropod::infer

// A tokenizer.json for Hugging Face's `tokenizers`, which gives the same ids: a Unigram model over the
// byte-level alphabet of GPT-2, behind a Split at the hard boundaries. docs/tokenizer.md ("Export")
// says what is exact about it and why.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace sauropod::tokenizer {

std::string to_huggingface(const Tokenizer& tokenizer);

}  // namespace sauropod::tokenizer

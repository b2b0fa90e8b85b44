// The [model] section: what it means and what is refused.
#include "base/error.h"
#include "config/section.h"
#include "model/parameters.h"

namespace sauropod::model {

void ModelOptions::declare(config::Section& section) {
  section.option("family", family,
                 {.help = "Block of the model: jurassic (GPT-2 style, as Jurassic-1) or llama",
                  .choices = {"jurassic", "llama"}});
  section.option("layers", layers, {.help = "Transformer blocks", .min = 1, .max = 1000});
  section.option("hidden", hidden,
                 {.help = "Width of the residual stream; a multiple of 8", .min = 8, .max = 65536});
  section.option("heads", heads, {.help = "Query heads", .min = 1, .max = 1024});
  section.option("kv_heads", kv_heads,
                 {.help = "Key/value heads; 0: as many as query heads (llama only)",
                  .min = 0,
                  .max = 1024});
  section.option("head_size", head_size,
                 {.help = "Width of a head; even; 0: hidden / heads", .min = 0, .max = 1024});
  section.option("mlp_hidden", mlp_hidden,
                 {.help = "Width of the feed-forward layer; 0: 4 hidden (jurassic), 8/3 hidden "
                          "rounded up to a multiple of 64 (llama)",
                  .min = 0,
                  .max = 1 << 20});
  section.option("context", context,
                 {.help = "Longest sequence", .unit = "tokens", .min = 2, .max = 1 << 20});
  section.option("vocabulary", vocabulary,
                 {.help = "Items of the vocabulary; 0: as many as the tokenizer has",
                  .min = 0,
                  .max = 1 << 24});
  section.option("tied_embeddings", tied_embeddings,
                 {.help = "Whether the output layer is the token embedding"});
  section.option("norm_epsilon", norm_epsilon,
                 {.help = "Added to the variance in normalisation", .min = 0, .max = 1});
  section.option("rope_theta", rope_theta,
                 {.help = "Base of the rotary angles (llama only)", .min = 1});
}

void ModelOptions::resolve(int64_t tokenizer_vocabulary) {
  if (family != "jurassic" && family != "llama")
    base::fail_usage("model.family '{}' is not known; choose jurassic or llama", family);
  const bool jurassic = family == "jurassic";
  if (vocabulary == 0) vocabulary = tokenizer_vocabulary;
  if (vocabulary == 0)
    base::fail_usage("the size of the vocabulary is not known: set tokenizer.path, or "
                     "model.vocabulary for a model without a tokenizer");
  if (tokenizer_vocabulary > vocabulary)
    base::fail_usage("model.vocabulary is {}, but the tokenizer has {} items; leave it out or make "
                     "it at least that",
                     vocabulary, tokenizer_vocabulary);
  if (kv_heads == 0) kv_heads = heads;
  if (jurassic && kv_heads != heads)
    base::fail_usage("model.kv_heads {} differs from model.heads {}: the jurassic family has no "
                     "grouped keys and values",
                     kv_heads, heads);
  if (heads % kv_heads != 0)
    base::fail_usage("model.heads {} is no multiple of model.kv_heads {}", heads, kv_heads);
  if (head_size == 0) {
    if (hidden % heads != 0)
      base::fail_usage("model.hidden {} is no multiple of model.heads {}: change one of them, or "
                       "set model.head_size",
                       hidden, heads);
    head_size = hidden / heads;
  }
  if (head_size % 2 != 0)
    base::fail_usage("the width of a head is {} (model.hidden {} / model.heads {}); it must be even",
                     head_size, hidden, heads);
  if (hidden % 8 != 0) base::fail_usage("model.hidden {} is no multiple of 8", hidden);
  if (mlp_hidden == 0) mlp_hidden = jurassic ? 4 * hidden : (8 * hidden / 3 + 63) / 64 * 64;
}

}  // namespace sauropod::model

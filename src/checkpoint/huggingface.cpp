#include "checkpoint/huggingface.h"

#include <map>
#include <optional>

#include "base/error.h"

namespace sauropod::checkpoint {
namespace {

using model::ModelOptions;
using model::Parameter;
using nlohmann::json;

constexpr int64_t end_of_document = 0;  // docs/tokenizer.md

// Where a parameter of a block goes. `part` n: the n-th of those stacked under one name.
struct Place {
  std::string name;
  bool transpose = false;
  int part = 0;
};

// Names within a block; a weight and its bias share the entry, and only weights are transposed.
const std::map<std::string, Place>& gpt2_block() {
  static const std::map<std::string, Place> places{
      {"attention.norm", {"ln_1"}},
      {"attention.query", {"attn.c_attn", true, 0}},
      {"attention.key", {"attn.c_attn", true, 1}},
      {"attention.value", {"attn.c_attn", true, 2}},
      {"attention.output", {"attn.c_proj", true}},
      {"mlp.norm", {"ln_2"}},
      {"mlp.up", {"mlp.c_fc", true}},
      {"mlp.down", {"mlp.c_proj", true}},
  };
  return places;
}

const std::map<std::string, Place>& llama_block() {
  static const std::map<std::string, Place> places{
      {"attention.norm", {"input_layernorm"}},
      {"attention.query", {"self_attn.q_proj"}},
      {"attention.key", {"self_attn.k_proj"}},
      {"attention.value", {"self_attn.v_proj"}},
      {"attention.output", {"self_attn.o_proj"}},
      {"mlp.norm", {"post_attention_layernorm"}},
      {"mlp.gate", {"mlp.gate_proj"}},
      {"mlp.up", {"mlp.up_proj"}},
      {"mlp.down", {"mlp.down_proj"}},
  };
  return places;
}

const std::map<std::string, std::string>& gpt2_outside() {
  static const std::map<std::string, std::string> names{
      {"embedding.token.weight", "transformer.wte.weight"},
      {"embedding.position.weight", "transformer.wpe.weight"},
      {"final_norm.weight", "transformer.ln_f.weight"},
      {"final_norm.bias", "transformer.ln_f.bias"},
      {"head.weight", "lm_head.weight"},
  };
  return names;
}

const std::map<std::string, std::string>& llama_outside() {
  static const std::map<std::string, std::string> names{
      {"embedding.token.weight", "model.embed_tokens.weight"},
      {"final_norm.weight", "model.norm.weight"},
      {"head.weight", "lm_head.weight"},
  };
  return names;
}

std::optional<Place> place_of(const Parameter& parameter, bool gpt2) {
  const auto& outside = gpt2 ? gpt2_outside() : llama_outside();
  if (const auto found = outside.find(parameter.name); found != outside.end())
    return Place{found->second};
  const std::string prefix = fmt::format("layers.{}.", parameter.layer);
  if (!parameter.name.starts_with(prefix)) return std::nullopt;
  const std::string rest = parameter.name.substr(prefix.size());
  const size_t dot = rest.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string kind = rest.substr(dot);  // ".weight" or ".bias"
  const auto& block = gpt2 ? gpt2_block() : llama_block();
  const auto found = block.find(rest.substr(0, dot));
  if (found == block.end() || (kind != ".weight" && !(gpt2 && kind == ".bias")))
    return std::nullopt;
  Place place = found->second;
  place.name = fmt::format("{}.{}.{}{}", gpt2 ? "transformer.h" : "model.layers", parameter.layer,
                           place.name, kind);
  place.transpose = place.transpose && kind == ".weight";
  return place;
}

const char* class_of(bool gpt2) { return gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"; }

bool is_gpt2(const ModelOptions& options) {
  if (options.family != "jurassic" && options.family != "llama")
    base::fail("models of the family \"{}\" can't be exported to Hugging Face", options.family);
  return options.family == "jurassic";
}

const char* torch_dtype(const std::string& dtype) {
  return dtype == "F64" ? "float64" : dtype == "BF16" ? "bfloat16" : "float32";
}

}  // namespace

std::vector<ForeignTensor> huggingface_tensors(const ModelOptions& options) {
  const bool gpt2 = is_gpt2(options);
  if (gpt2 && (options.kv_heads != options.heads ||
               options.heads * options.head_size != options.hidden))
    base::fail("GPT2LMHeadModel needs as many key/value heads as heads and heads x head size equal "
               "to the hidden size; this model has {} and {} heads of {} over a hidden size of {}",
               options.heads, options.kv_heads, options.head_size, options.hidden);
  std::vector<ForeignTensor> tensors;
  for (const Parameter& parameter : model::parameter_table(options)) {
    const std::optional<Place> place = place_of(parameter, gpt2);
    if (!place)
      base::fail("{} has no place for the parameter {}", class_of(gpt2), parameter.name);
    if (place->part == 0) {
      tensors.push_back({place->name, parameter.shape, {parameter.name}, place->transpose});
      continue;
    }
    // Query, key and value follow each other in the table, weights and biases apart.
    ForeignTensor& stacked = tensors.back();
    SAUROPOD_CHECK(stacked.name == place->name &&
                       stacked.sources.size() == static_cast<size_t>(place->part),
                   "{} does not follow its neighbour in the table", parameter.name);
    stacked.shape[0] += parameter.shape[0];
    stacked.sources.push_back(parameter.name);
  }
  for (ForeignTensor& tensor : tensors)
    if (tensor.transpose) std::swap(tensor.shape.at(0), tensor.shape.at(1));
  return tensors;
}

json huggingface_config(const ModelOptions& options, const std::string& dtype) {
  const bool gpt2 = is_gpt2(options);
  json config{{"architectures", {class_of(gpt2)}},
              {"vocab_size", options.vocabulary},
              {"tie_word_embeddings", options.tied_embeddings},
              {"bos_token_id", end_of_document},
              {"eos_token_id", end_of_document},
              {"torch_dtype", torch_dtype(dtype)},
              {"use_cache", true}};
  if (gpt2) {
    config.update({{"model_type", "gpt2"},
                   {"n_positions", options.context},
                   {"n_embd", options.hidden},
                   {"n_layer", options.layers},
                   {"n_head", options.heads},
                   {"n_inner", options.mlp_hidden},
                   {"activation_function", "gelu_new"},
                   {"layer_norm_epsilon", options.norm_epsilon},
                   {"resid_pdrop", 0.0},
                   {"embd_pdrop", 0.0},
                   {"attn_pdrop", 0.0}});
  } else {
    config.update({{"model_type", "llama"},
                   {"max_position_embeddings", options.context},
                   {"hidden_size", options.hidden},
                   {"intermediate_size", options.mlp_hidden},
                   {"num_hidden_layers", options.layers},
                   {"num_attention_heads", options.heads},
                   {"num_key_value_heads", options.kv_heads},
                   {"head_dim", options.head_size},
                   {"hidden_act", "silu"},
                   {"rms_norm_eps", options.norm_epsilon},
                   {"rope_theta", options.rope_theta},
                   {"attention_bias", false},
                   {"mlp_bias", false},
                   {"attention_dropout", 0.0}});
  }
  return config;
}

}  // namespace sauropod::checkpoint

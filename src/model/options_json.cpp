#include "model/options_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::model {
namespace {

// Calls visit(key, member) for every field.
template <typename Options, typename Visit>
void for_each_field(Options& options, const Visit& visit) {
  visit("family", options.family);
  visit("layers", options.layers);
  visit("hidden", options.hidden);
  visit("heads", options.heads);
  visit("kv_heads", options.kv_heads);
  visit("head_size", options.head_size);
  visit("mlp_hidden", options.mlp_hidden);
  visit("context", options.context);
  visit("vocabulary", options.vocabulary);
  visit("tied_embeddings", options.tied_embeddings);
  visit("norm_epsilon", options.norm_epsilon);
  visit("rope_theta", options.rope_theta);
}

}  // namespace

nlohmann::json to_json(const ModelOptions& options) {
  nlohmann::json json = nlohmann::json::object();
  for_each_field(options, [&](const char* key, const auto& value) { json[key] = value; });
  return json;
}

ModelOptions options_from_json(const nlohmann::json& json, const std::string& source) {
  ModelOptions options;
  for_each_field(options, [&](const char* key, auto& value) {
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception& error) {
      base::fail("{}: the model's description can't be read at '{}': {}", source, key, error.what());
    }
  });
  options.resolve(0);
  return options;
}

}  // namespace sauropod::model

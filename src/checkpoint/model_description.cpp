#include "checkpoint/model_description.h"

#include "base/error.h"

namespace sauropod::checkpoint {
namespace {

using nlohmann::json;

// Calls field(key, member) for every member of ModelOptions.
template <typename Options, typename Field>
void each_field(Options& options, Field&& field) {
  field("family", options.family);
  field("layers", options.layers);
  field("hidden", options.hidden);
  field("heads", options.heads);
  field("kv_heads", options.kv_heads);
  field("head_size", options.head_size);
  field("mlp_hidden", options.mlp_hidden);
  field("context", options.context);
  field("vocabulary", options.vocabulary);
  field("tied_embeddings", options.tied_embeddings);
  field("norm_epsilon", options.norm_epsilon);
  field("rope_theta", options.rope_theta);
}

}  // namespace

json describe_model(const model::ModelOptions& options) {
  json description = json::object();
  each_field(options, [&](const char* key, const auto& value) { description[key] = value; });
  return description;
}

model::ModelOptions parse_model(const json& description, const std::string& where) {
  if (!description.is_object()) base::fail("{} does not describe its model", where);
  model::ModelOptions options;
  size_t known = 0;
  each_field(options, [&](const char* key, auto& value) {
    const auto found = description.find(key);
    if (found == description.end()) base::fail("{}: the model lacks \"{}\"", where, key);
    try {
      found->get_to(value);
    } catch (const json::exception&) {
      base::fail("{}: the model's \"{}\" is {}, which it can't be", where, key, found->dump());
    }
    ++known;
  });
  for (const auto& [key, value] : description.items()) {
    bool found = false;
    each_field(options, [&](const char* name, auto&) { found |= key == name; });
    if (!found)
      base::fail("{}: the model has \"{}\", which this program does not know: use the program that "
                 "wrote the checkpoint, or a newer one",
                 where, key);
  }
  for (const int64_t size : {options.layers, options.hidden, options.heads, options.kv_heads,
                             options.head_size, options.mlp_hidden, options.context,
                             options.vocabulary})
    if (size < 1 || size > int64_t{1} << 40)
      base::fail("{}: the model's description is not complete: {}", where, description.dump());
  return options;
}

}  // namespace sauropod::checkpoint

// The model as checkpoints describe it: the resolved ModelOptions as JSON, under the names of the
// recipe's keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/parameters.h"

namespace sauropod::checkpoint {

nlohmann::json describe_model(const model::ModelOptions& options);

// Throws base::Error when a key is missing, unknown, of the wrong type, or the shape can't be meant;
// `where` is what messages call the checkpoint.
model::ModelOptions parse_model(const nlohmann::json& description, const std::string& where);

}  // namespace sauropod::checkpoint

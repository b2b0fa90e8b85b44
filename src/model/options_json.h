// ModelOptions in checkpoints: one JSON object, its keys the names of the fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/parameters.h"

namespace sauropod::model {

nlohmann::json to_json(const ModelOptions& options);

// Throws base::Error that names `source` when a key is missing or has another type, or when the shape
// can't be meant.
ModelOptions options_from_json(const nlohmann::json& json, const std::string& source);

}  // namespace sauropod::model

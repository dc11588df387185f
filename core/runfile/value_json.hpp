// A value of a run file or a manifest as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <trainyard/value.hpp>

namespace trainyard::config {

nlohmann::ordered_json json_of(const Value& value);

}  // namespace trainyard::config

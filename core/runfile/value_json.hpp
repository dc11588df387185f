// Converts a value to JSON; numbers that are not finite, which JSON lacks, become "nan", "inf" or "-inf".
#pragma once

#include <nlohmann/json.hpp>

#include <trainyard/value.hpp>

namespace trainyard::config {

nlohmann::ordered_json json_of(const Value& value);

}  // namespace trainyard::config

// A value as JSON, which has no word for a number that is not finite: that is the text "nan", "inf" or "-inf".
#pragma once

#include <nlohmann/json.hpp>

#include <trainyard/value.hpp>

namespace trainyard::config {

nlohmann::ordered_json json_of(const Value& value);

}  // namespace trainyard::config

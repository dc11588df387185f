#include "core/runfile/value_json.hpp"

#include <cmath>

namespace trainyard::config {

nlohmann::ordered_json json_of(const Value& value) {
  if (const auto* held = value.get_if<Array>()) {
    auto array = nlohmann::ordered_json::array();
    for (const Value& element : *held) array.push_back(json_of(element));
    return array;
  }
  if (const auto* held = value.get_if<Table>()) {
    auto object = nlohmann::ordered_json::object();
    for (const Table::Entry& entry : held->entries()) object[entry.key] = json_of(entry.value);
    return object;
  }
  if (const auto* held = value.get_if<bool>()) return *held;
  if (const auto* held = value.get_if<std::int64_t>()) return *held;
  if (const auto* held = value.get_if<double>(); held != nullptr && std::isfinite(*held)) return *held;
  if (const auto* held = value.get_if<double>()) return *held > 0 ? "inf" : *held < 0 ? "-inf" : "nan";
  return value.as<std::string>();
}

}  // namespace trainyard::config

#include "core/runfile/value_json.hpp"

namespace trainyard::config {

using nlohmann::ordered_json;

ordered_json json_of(const Value& value) {
  if (const auto* held = value.get_if<Array>()) {
    auto array = ordered_json::array();
    for (const Value& element : *held) array.push_back(json_of(element));
    return array;
  }
  if (const auto* held = value.get_if<Table>()) {
    auto object = ordered_json::object();
    for (const Table::Entry& entry : held->entries()) object[entry.key] = json_of(entry.value);
    return object;
  }
  if (const auto* held = value.get_if<bool>()) return *held;
  if (const auto* held = value.get_if<std::int64_t>()) return *held;
  if (const auto* held = value.get_if<double>()) return *held;
  return value.as<std::string>();
}

}  // namespace trainyard::config

// Reads the golden values of tests/golden.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include <trainyard/value.hpp>

namespace trainyard::test {

inline nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/" + name);
  return nlohmann::json::parse(file);
}

/// A double tensor of a flat list.
inline at::Tensor tensor(const nlohmann::json& values, const std::vector<std::int64_t>& shape) {
  std::vector<double> flat = values.get<std::vector<double>>();
  return at::from_blob(flat.data(), shape, at::kDouble).clone();
}

inline Table options(const nlohmann::json& json);

inline Value value(const nlohmann::json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object()) return options(json);
  Array array;
  for (const auto& element : json) array.push_back(value(element));
  return array;
}

/// Of a plugin.
inline Table options(const nlohmann::json& json) {
  Table table;
  for (const auto& [key, entry] : json.items()) table.set(key, value(entry));
  return table;
}

/// The largest difference, relative to the larger of 1 and |expected|.
inline double distance(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor a = found.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  return ((a - b).abs() / b.abs().clamp_min(1.0)).max().item<double>();
}

}  // namespace trainyard::test

#include "kept_file.hpp"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/new_file.hpp"

namespace filters {
namespace {

KeptOutputs outputs_of(const std::string& where, const nlohmann::json& json) {
  const auto fail = [&](const std::string& what) { throw trainyard::DataError(where + what); };
  if (!json.is_object() || !json.contains("of") || !json.contains("kept") ||
      !json["of"].is_number_integer() || !json["kept"].is_array())
    fail("is not as {\"of\": 16, \"kept\": [0, 3, 4]}");
  KeptOutputs outputs{json["of"].get<std::int64_t>(), {}};
  for (const nlohmann::json& each : json["kept"]) {
    if (!each.is_number_integer()) fail("keeps " + each.dump() + ", which is no number of an output");
    const auto number = each.get<std::int64_t>();
    if (number < 0 || number >= outputs.of)
      fail("keeps output " + each.dump() + " of " + std::to_string(outputs.of) + ", counted from 0");
    if (!outputs.kept.empty() && number <= outputs.kept.back()) fail("keeps outputs that do not ascend");
    outputs.kept.push_back(number);
  }
  if (outputs.kept.empty()) fail("keeps no output");
  return outputs;
}

}  // namespace

Kept read_kept(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw trainyard::DataError(path + ": cannot be read");
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("layers") || !json["layers"].is_object())
    throw trainyard::DataError(
        path + ": is no JSON of the form {\"layers\": {\"conv1\": {\"of\": 16, \"kept\": [0, 3, 4]}}}");
  Kept kept;
  for (const auto& [name, each] : json["layers"].items())
    kept.emplace(name, outputs_of(path + ": layer \"" + name + "\" ", each));
  return kept;
}

void write_kept(const std::string& path, const Kept& kept) {
  nlohmann::json layers = nlohmann::json::object();
  for (const auto& [name, outputs] : kept) layers[name] = {{"of", outputs.of}, {"kept", outputs.kept}};
  trainyard::lib::NewFile made(path);
  std::ofstream file(made.temporary());
  file << nlohmann::json{{"layers", layers}}.dump() << '\n';
  file.close();
  if (!file || made.put_in_place()) throw trainyard::DataError(path + ": cannot be written");
}

}  // namespace filters

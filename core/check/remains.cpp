#include "core/check/remains.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "core/rundir/folder.hpp"

namespace trainyard::check {
namespace {

using Json = nlohmann::json;

void read_checkpoint(const std::string& run_folder, Remains& remains) {
  const std::vector<std::string> all = checkpoint::list(run_folder + "/checkpoints");
  if (all.empty()) return;
  const std::string& newest = all.back();
  const checkpoint::Manifest manifest = checkpoint::read_manifest(newest);
  for (const checkpoint::StateEntry& state : manifest.states) {
    std::vector<std::string>& lines = remains["state of " + state.owner];
    lines.push_back(state.version);
    const bool recorder = state.owner.starts_with("recorder");
    for (const auto& [name, value] : state.scalars)
      if (!is_time(name) && !(recorder && name == "samples"))  // samples the machine twice a second
        lines.push_back(name + " " + std::visit([](const auto& held) { return Json(held).dump(); }, value));
  }
  for (const checkpoint::TensorEntry& tensor : manifest.tensors)
    remains["state of " + tensor.owner].push_back(tensor.name + " " + tensor.digest);
}

}  // namespace

bool is_time(std::string_view name) {
  return name == "seconds" || name.ends_with("samples_per_second");
}

Remains remains_of(const std::string& run_folder) {
  std::ifstream file(run_folder + "/result.json");
  const Json result = Json::parse(file, nullptr, false);
  if (!result.is_object()) throw DataError(run_folder + "/result.json: is absent or broken");
  Remains remains;
  for (const char* key : {"status", "exit_code", "steps", "epochs", "samples", "error"})
    remains["result"].push_back(std::string(key) + " " + result[key].dump());
  for (const char* key : {"model", "optimizer"})
    remains["digest"].push_back(std::string(key) + " " + result["digest"][key].dump());
  for (const auto& [name, value] : result["metrics"].items())
    if (!is_time(name)) remains["last metrics"].push_back(name + " " + value.dump());
  read_checkpoint(run_folder, remains);
  return remains;
}

std::string difference(const Remains& found, const Remains& expected) {
  for (const auto& [name, lines] : expected)
    if (!found.contains(name)) return name + ": nothing, expected " + std::to_string(lines.size()) + " lines";
  for (const auto& [name, lines] : found) {
    const auto wanted = expected.find(name);
    if (wanted == expected.end())
      return name + ": " + std::to_string(lines.size()) + " lines, expected nothing";
    const auto [a, b] =
        std::mismatch(lines.begin(), lines.end(), wanted->second.begin(), wanted->second.end());
    if (a == lines.end() && b == wanted->second.end()) continue;
    return name + ", line " + std::to_string(a - lines.begin() + 1) + " of " + std::to_string(lines.size()) +
           ": " + (a == lines.end() ? "nothing" : a->substr(0, 300)) + "\n  expected " +
           (b == wanted->second.end() ? "nothing" : b->substr(0, 300));
  }
  return {};
}

}  // namespace trainyard::check

#include "written.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "lib/escapes.hpp"
#include "lib/new_file.hpp"

namespace pruning {
namespace {

/// Returns a name for an entry of [[transforms]] that the run does not have yet, so that it comes behind the others.
std::string free_id(const Table& run) {
  std::vector<std::string> taken;
  const Value* list = run.find("transforms");
  if (list == nullptr) return "filters";
  for (const Value& each : list->as<Array>()) {
    const Value* id = each.as<Table>().find("id");
    taken.push_back((id != nullptr ? id : each.as<Table>().find("type"))->as<std::string>());
  }
  std::string id = "filters";
  for (int i = 2; std::ranges::find(taken, id) != taken.end(); ++i) id = "filters" + std::to_string(i);
  return id;
}

}  // namespace

std::vector<std::string> write(const std::string& folder, const std::vector<NamedTensor>& weights,
                               const std::optional<filters::Kept>& kept, const Table& run) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw DataError(folder + ": cannot be made: " + error.message());
  const auto place = [&](const char* name) {
    return std::filesystem::absolute(folder).lexically_normal().string() + "/" + name;
  };
  std::vector<std::string> files = {place("model.safetensors"), place("run.toml")};
  write_safetensors(files[0], weights);
  std::string text = "# Trains pruned weights on: trainyard train run.toml " + lib::toml_string(files[1]) +
                     " --set run.name=NAME\nschema = 1\n\n[run]\nresume = " + lib::toml_string(files[0]) +
                     "\nload = \"weights\"\n\n[[transforms]]\n";
  if (kept) {
    files.push_back(place("kept.json"));
    filters::write_kept(files[2], *kept);
    text += "type = \"filters\"\nid = " + lib::toml_string(free_id(run)) +
            "\nkept = " + lib::toml_string(files[2]) + "\n";
  } else {
    text += "type = \"prune\"  # takes no more away; what is zero stays zero\nratio = 0.0\nzeros = \"all\"\n";
  }
  lib::NewFile made(files[1]);
  std::ofstream file(made.temporary());
  file << text;
  file.close();
  if (!file || made.put_in_place()) throw DataError(files[1] + ": cannot be written");
  return files;
}

}  // namespace pruning

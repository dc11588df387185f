#include "files.hpp"

#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "lib/read_file.hpp"

namespace convert {
namespace {

namespace fs = std::filesystem;
using trainyard::DataError;

/// The file of each tensor.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::optional<std::string> text = trainyard::lib::read_file(path);
  if (!text) throw DataError(path + ": cannot be read");
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    throw DataError(path + ": expected {\"weight_map\": {tensor: file}}, as transformers writes it");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename())
      throw DataError(path + ": the file of \"" + tensor + "\" is " + file.dump() +
                      ", expected the name of one in the same folder");
    files.emplace(tensor, name);
  }
  return files;
}

Tensors read_shards(const std::string& path) {
  const std::map<std::string, std::string> index = read_index(path);
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(file);
  Tensors all;
  for (const std::string& file : files) {
    const std::string shard = folder_of(path) + "/" + file;
    for (trainyard::NamedTensor& each : trainyard::read_safetensors(shard)) {
      const auto found = index.find(each.name);
      if (found == index.end() || found->second != file)
        throw DataError(
            shard + ": holds \"" + each.name + "\", of which " + path +
            (found == index.end() ? " does not know" : " says that " + found->second + " has it"));
      all.push_back(std::move(each));
    }
  }
  std::set<std::string> found;
  for (const trainyard::NamedTensor& each : all) found.insert(each.name);
  for (const auto& [tensor, file] : index)
    if (!found.contains(tensor))
      throw DataError(folder_of(path) + "/" + file + ": lacks \"" + tensor + "\", which " + path +
                      " says that it has");
  return all;
}

}  // namespace

std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Tensors read_weights(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw DataError(path + " does not exist: name a safetensors file, or its folder");
  if (fs::is_directory(path, error)) {
    for (const char* name : {"/model.safetensors", "/model.safetensors.index.json"})
      if (fs::exists(path + name, error)) return read_weights(path + name);
    throw DataError(path + ": holds neither model.safetensors nor model.safetensors.index.json");
  }
  return path.ends_with(".json") ? read_shards(path) : trainyard::read_safetensors(path);
}

}  // namespace convert

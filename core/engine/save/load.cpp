#include "core/engine/save/load.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "core/plugins/sha256.hpp"
#include "core/rundir/checked_file.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/manifest.hpp"

namespace trainyard::checkpoint {
namespace {

State& state_of(std::vector<State>& states, std::string_view owner) {
  return *std::find_if(states.begin(), states.end(), [&](const State& each) { return each.owner == owner; });
}

/// Adds the tensors of a file to the states that they belong to.
void load_file(const std::string& checkpoint, const Manifest& manifest, const FileEntry& entry,
               std::vector<State>& states) {
  const CheckedFile file(checkpoint, entry);
  file.check_size();
  file.check_header();
  std::map<std::string, at::Tensor> tensors;
  for (NamedTensor& each : read_safetensors(file.path())) tensors.emplace(each.name, std::move(each.tensor));
  for (const TensorEntry& wanted : manifest.tensors) {
    if (wanted.file != entry.name) continue;
    const std::string name = stored_name(wanted.owner, wanted.name);
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw DataError(file.path() + ": tensor \"" + name + "\" is not in it");
    const at::Tensor& tensor = found->second;
    const std::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    if (const std::string digest = plugins::Sha256::of(bytes); digest != wanted.digest)
      throw DataError(file.path() + ": tensor \"" + name + "\" is not as it was written: its SHA-256 is " +
                      digest + " instead of " + wanted.digest);
    state_of(states, wanted.owner).tensors.emplace(wanted.name, tensor);
  }
}

}  // namespace

const State* Loaded::find(std::string_view owner) const {
  const auto found =
      std::find_if(states.begin(), states.end(), [&](const State& each) { return each.owner == owner; });
  return found == states.end() ? nullptr : &*found;
}

Loaded load(const std::string& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  Loaded loaded{.path = checkpoint, .step = manifest.step, .states = {}};
  for (const StateEntry& each : manifest.states)
    loaded.states.push_back({each.owner, each.version, each.scalars, {}});
  for (const FileEntry& each : manifest.files) load_file(checkpoint, manifest, each, loaded.states);
  return loaded;
}

std::optional<Loaded> load_newest(
    const std::string& folder,
    const std::function<void(const std::string& checkpoint, const std::string& why)>& damaged) {
  const std::vector<std::string> checkpoints = list(folder);
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend(); ++each) {
    try {
      return load(*each);
    } catch (const DataError& error) {
      damaged(*each, error.what());
    }
  }
  return std::nullopt;
}

std::vector<NamedTensor> load_weights(const std::string& path) {
  const std::string found = weights_in(path);
  if (!std::filesystem::is_directory(found)) return read_safetensors(found);
  const std::string checkpoint = find(found).back();
  const Manifest manifest = read_manifest(checkpoint);
  std::vector<State> states;
  for (const StateEntry& each : manifest.states) states.push_back({each.owner, each.version, {}, {}});
  for (const FileEntry& each : manifest.files)
    if (each.name == "model.safetensors") load_file(checkpoint, manifest, each, states);
  std::vector<NamedTensor> weights;
  for (const State& state : states)
    if (state.owner == "model")
      for (const auto& [name, tensor] : state.tensors) weights.push_back({name, tensor});
  if (weights.empty()) throw DataError(checkpoint + ": holds no weights of a model");
  return weights;
}

}  // namespace trainyard::checkpoint

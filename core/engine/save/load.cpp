#include "core/engine/save/load.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <ATen/ops/empty.h>

#include <trainyard/error.hpp>
#include <trainyard/sharded.hpp>

#include "core/rundir/checked_file.hpp"
#include "core/rundir/folder.hpp"
#include "core/rundir/manifest.hpp"
#include "core/runfile/rank_place.hpp"

namespace trainyard::checkpoint {
namespace {

State& state_of(std::vector<State>& states, std::string_view owner) {
  return *std::find_if(states.begin(), states.end(), [&](const State& each) { return each.owner == owner; });
}

/// Checks the part of a tensor that was read, all of it or some rows, against its digest.
void check(const CheckedFile& file, const TensorEntry& entry, const RowsWanted& wanted,
           const at::Tensor& tensor) {
  const std::string name = stored_name(entry.owner, entry.name);
  const auto rows = wanted(name, entry.shape);
  if (rows && entry.shape.front() > 0) {
    const std::uint64_t row = entry.length / static_cast<std::uint64_t>(entry.shape.front());
    return file.check(entry, row * static_cast<std::uint64_t>(rows->first),
                      row * static_cast<std::uint64_t>(rows->second));
  }
  if (!entry.parts.empty()) return file.check(entry);
  const std::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  file.check(entry, bytes);
}

/// Returns a tensor that a codec stored, with its bytes checked.
at::Tensor from_code(const CheckedFile& file, const TensorEntry& entry) {
  const std::string bytes = file.bytes_of(entry);
  at::Tensor tensor =
      at::empty(entry.shape, at::TensorOptions(safetensors_type(file.path(), "", entry.dtype)));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), tensor.nbytes());
  return tensor;
}

/// Adds the tensors of a file, or their wanted rows, to the states that they belong to.
void load_file(const std::string& checkpoint, const Manifest& manifest, const FileEntry& entry,
               const RowsWanted& rows, std::vector<State>& states) {
  const CheckedFile file(checkpoint, entry);
  file.check_size();
  file.check_header();
  std::map<std::string, at::Tensor> tensors;
  for (NamedTensor& each : read_safetensors(file.path(), rows))
    tensors.emplace(each.name, std::move(each.tensor));
  for (const TensorEntry& wanted : manifest.tensors) {
    if (wanted.file != entry.name) continue;
    const bool coded = !wanted.codec.empty();
    const std::string name =
        coded ? code_name(wanted.owner, wanted.name, wanted.codec) : stored_name(wanted.owner, wanted.name);
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw DataError(file.path() + ": tensor \"" + name + "\" is not in it");
    if (coded)
      found->second = from_code(file, wanted);
    else
      check(file, wanted, rows, found->second);
    state_of(states, wanted.owner).tensors.emplace(wanted.name, found->second);
  }
}

/// Returns which rows to read: this rank's, of tensors that were written as shards; else all.
RowsWanted rows_of(const Manifest& manifest) {
  std::set<std::string> in_parts;
  for (const TensorEntry& each : manifest.tensors)
    if (!each.parts.empty()) in_parts.insert(stored_name(each.owner, each.name));
  return [in_parts, place = config::RankPlace::of_process()](const std::string& name,
                                                             const std::vector<std::int64_t>& shape) {
    return in_parts.contains(name) ? std::optional(rows_of_rank(shape.front(), place.rank, place.size))
                                   : std::nullopt;
  };
}

}  // namespace

const State* Loaded::find(std::string_view owner) const {
  const auto found = std::ranges::find(states, owner, &State::owner);
  return found == states.end() ? nullptr : &*found;
}

Loaded load(const std::string& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  Loaded loaded{.path = checkpoint, .step = manifest.step, .states = {}};
  for (const StateEntry& each : manifest.states)
    loaded.states.push_back({each.owner, each.version, each.scalars, {}});
  for (const FileEntry& each : manifest.files)
    load_file(checkpoint, manifest, each, rows_of(manifest), loaded.states);
  return loaded;
}

std::optional<Loaded> load_newest(
    const std::string& folder,
    const std::function<void(const std::string& checkpoint, const std::string& why)>& damaged) {
  const std::vector<std::string> checkpoints = list(folder);
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend(); ++each) {
    try {
      Loaded loaded = load(*each);
      check_parts(*each);
      return loaded;
    } catch (const DataError& error) {
      damaged(*each, error.what());
    }
  }
  return std::nullopt;
}

std::vector<NamedTensor> load_weights(const std::string& path, const RowsWanted& wanted) {
  const std::string found = weights_in(path);
  if (!std::filesystem::is_directory(found)) return read_safetensors(found, wanted);
  const std::string checkpoint = find(found).back();
  const Manifest manifest = read_manifest(checkpoint);
  std::vector<State> states;
  for (const StateEntry& each : manifest.states) states.push_back({each.owner, each.version, {}, {}});
  for (const FileEntry& each : manifest.files)
    if (each.name == "model.safetensors") load_file(checkpoint, manifest, each, wanted, states);
  std::vector<NamedTensor> weights;
  for (const State& state : states)
    if (state.owner == "model")
      for (const auto& [name, tensor] : state.tensors) weights.push_back({name, tensor});
  if (weights.empty()) throw DataError(checkpoint + ": holds no weights of a model");
  return weights;
}

}  // namespace trainyard::checkpoint

#include "core/engine/train/shards.hpp"
#include "core/rundir/run_directory.hpp"
#include "lib/new_file.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/formats/shared_safetensors.hpp>

namespace trainyard::train {

Parameters parameters_of(const Network& network) {
  Parameters found{.replicated = network.parameters(), .sharded = {}};
  const auto* const tables = dynamic_cast<const ShardsTables*>(&network);
  if (tables == nullptr) return found;
  std::set<std::string, std::less<>> names;
  for (const ShardedTable& table : tables->sharded()) names.insert(table.name);
  for (const NamedTensor& each : found.replicated)
    if (names.contains(each.name)) found.sharded.push_back(each.tensor);
  std::erase_if(found.replicated, [&](const NamedTensor& each) { return names.contains(each.name); });
  return found;
}

std::unique_ptr<Shards> Shards::of(Network& network, distributed::World* world,
                                   const config::RunConfig& config) {
  auto* const tables = dynamic_cast<ShardsTables*>(&network);
  if (tables == nullptr || world == nullptr) return nullptr;
  const std::string because = ": the tables of the model lie in parts on the ranks (" +
                              std::to_string(tables->sharded().size()) + " of them)";
  if (!config.train.drop_last)
    throw ConfigError("data.train.drop_last = true is needed, so that all ranks have the same micro-batches" +
                      because);
  if (!config.distributed.shares.empty())
    throw ConfigError("[distributed] shares cannot be had: all ranks make the same passes" + because);
  if (config.grad_clip)
    throw ConfigError("trainer.grad_clip cannot be had: no rank sees the gradient of all rows" + because);
  if (config.trainer.precision == config::TrainerKeys::Precision::fp16_mixed)
    throw ConfigError("trainer.precision = \"fp16-mixed\" cannot be had: an overflow is of one rank's rows" +
                      because);
  if (config.find("distributed.compressor") != nullptr)
    throw ConfigError("[distributed.compressor] cannot be had: their gradients are not summed" + because);
  return std::unique_ptr<Shards>(new Shards(network, *tables, *world));
}

checkpoint::Written Shards::write(const std::string& folder, Snapshot& snapshot) const {
  checkpoint::Written written{.folder = world_.from_first(folder), .files = {}, .tensors = {}};
  std::set<std::string> names;  // of files
  for (const std::vector<State>* states : {&snapshot.states, &snapshot.fixed})
    for (const State& state : *states)
      if (std::ranges::any_of(state.tensors, [&](const auto& each) {
            return rows.rows_of(each.first, each.second).has_value();
          }))
        names.insert(checkpoint::file_of(state.owner));
  for (const std::string& name : names) {
    std::vector<checkpoint::Item> items;
    for (std::vector<State>* states : {&snapshot.states, &snapshot.fixed})
      for (State& state : *states)
        if (checkpoint::file_of(state.owner) == name)
          for (auto& [tensor_name, tensor] : std::exchange(state.tensors, {}))
            items.push_back({state.owner, tensor_name, tensor, rows.rows_of(tensor_name, tensor)});
    checkpoint::write_file(name, std::move(items), &world_, written);
  }
  return written;
}

void Shards::write(const std::string& path, const std::vector<NamedTensor>& weights) const {
  std::vector<SharedTensor> tensors;
  for (const NamedTensor& each : weights)
    tensors.push_back({each.name, each.tensor, rows.rows_of(each.name, each.tensor)});
  const std::string first = world_.from_first(std::filesystem::absolute(path).string());
  write_together(first + ".tmp", tensors, &world_);
  if (world_.rank() != 0) return;
  lib::NewFile file(first);
  report::put_in_place(file);
}

}  // namespace trainyard::train

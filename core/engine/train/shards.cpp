#include "core/engine/train/shards.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include <trainyard/error.hpp>

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
  if (config.grad_clip)
    throw ConfigError("trainer.grad_clip cannot be had: no rank sees the gradient of all rows" + because);
  if (config.trainer.precision == config::TrainerKeys::Precision::fp16_mixed)
    throw ConfigError("trainer.precision = \"fp16-mixed\" cannot be had: an overflow is of one rank's rows" +
                      because);
  if (config.find("distributed.compressor") != nullptr)
    throw ConfigError("[distributed.compressor] cannot be had: their gradients are not summed" + because);
  return std::unique_ptr<Shards>(new Shards(network, *tables, *world));
}

/// Of a parameter, or of what an optimizer has of one: "sum/tables.0.weight".
const ShardedTable* Shards::table_of(std::string_view name) const {
  const auto found = std::ranges::find_if(all_, [&](const ShardedTable& table) {
    return name == table.name || name.ends_with("/" + table.name);
  });
  return found == all_.end() ? nullptr : &*found;
}

/// The parts of the ranks one behind the other.
at::Tensor Shards::gathered(const at::Tensor& own, std::int64_t rows) const {
  const int ranks = world_.size();
  const std::int64_t most = (rows + ranks - 1) / ranks;
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape.front() = most;
  const at::Tensor mine = at::zeros(shape, own.options().requires_grad(false));
  mine.narrow(0, 0, own.size(0)).copy_(own);
  shape.front() = most * ranks;
  const at::Tensor all = at::empty(shape, mine.options());
  world_.all_gather(all, mine)->wait();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [first, last] = rows_of_rank(rows, rank, ranks);
    parts.push_back(all.narrow(0, rank * most, last - first));
  }
  return at::cat(parts);
}

void Shards::gather() {
  const at::NoGradGuard no_grad;
  whole_.clear();
  const std::vector<NamedTensor> parameters = network_.parameters();
  for (const ShardedTable& table : all_)
    whole_.push_back(
        gathered(std::ranges::find(parameters, table.name, &NamedTensor::name)->tensor, table.rows));
  tables_.lend(whole_);
}

void Shards::release() {
  if (!std::exchange(whole_, {}).empty()) tables_.lend({});
}

std::vector<NamedTensor> Shards::whole(std::vector<NamedTensor> weights) const {
  for (std::size_t i = 0; i < whole_.size(); ++i)
    std::ranges::find(weights, all_[i].name, &NamedTensor::name)->tensor = whole_[i];
  return weights;
}

State Shards::gathered(State state) const {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : state.tensors)
    if (const ShardedTable* const table = table_of(name); table != nullptr && tensor.dim() > 0)
      tensor = gathered(tensor, table->rows);
  return state;
}

at::Tensor Shards::own(std::string_view name, const at::Tensor& whole) const {
  const ShardedTable* const table = table_of(name);
  if (table == nullptr || whole.dim() == 0 || whole.size(0) != table->rows) return whole;
  const auto [first, last] = rows_of_rank(table->rows, world_.rank(), world_.size());
  return whole.narrow(0, first, last - first).clone();
}

std::vector<State> Shards::own(std::vector<State> states, const std::vector<State>& now) const {
  for (State& state : states) {
    if (state.owner != "model" && state.owner != "optimizer") continue;
    for (auto& [name, tensor] : state.tensors) tensor = own(name, tensor);
    for (const State& own : now)
      if (own.owner == state.owner)
        for (const auto& [name, tensor] : own.tensors)
          if (table_of(name) != nullptr) state.tensors.emplace(name, tensor);
  }
  return states;
}

std::vector<State> Shards::without(std::vector<State> states) const {
  for (State& state : states)
    if (state.owner == "model" || state.owner == "optimizer")
      std::erase_if(state.tensors, [&](const auto& each) { return table_of(each.first) != nullptr; });
  return states;
}

}  // namespace trainyard::train

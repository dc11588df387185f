#include <trainyard/helpers/own_rows.hpp>

#include <algorithm>
#include <utility>

#include <trainyard/helpers/gather.hpp>

namespace trainyard {
namespace {

bool has_rows(const State& state) {
  return state.owner == "model" || state.owner == "optimizer";
}

}  // namespace

OwnRows::OwnRows(const Network& network, const ShardsTables& tables, Ranks& ranks) : ranks_(ranks) {
  for (const ShardedTable& table : tables.sharded())
    for (const NamedTensor& each : network.parameters())
      if (each.name == table.name) tables_.push_back({table.name, table.rows, each.tensor.sizes().vec()});
}

/// Finds the table of a parameter, or of its optimizer state: "sum/tables.0.weight".
const OwnRows::Table* OwnRows::table_of(std::string_view name) const {
  const auto found = std::ranges::find_if(
      tables_, [&](const Table& table) { return name == table.name || name.ends_with("/" + table.name); });
  return found == tables_.end() ? nullptr : &*found;
}

std::optional<std::int64_t> OwnRows::rows_of(std::string_view name, const at::Tensor& own) const {
  const Table* const table = table_of(name);
  if (table == nullptr || own.dim() == 0 || own.size(0) != table->own.front()) return std::nullopt;
  const bool same = own.dim() == 1 || own.sizes().slice(1) == at::IntArrayRef(table->own).slice(1);
  return same ? std::optional(table->rows) : std::nullopt;
}

RowsWanted OwnRows::wanted() const {
  return [this](const std::string& name, const std::vector<std::int64_t>& shape) {
    const Table* const table = table_of(name);
    const bool whole = table != nullptr && !shape.empty() && shape.front() == table->rows;
    return whole ? std::optional(rows_of_rank(table->rows, ranks_.rank(), ranks_.size())) : std::nullopt;
  };
}

std::vector<State> OwnRows::own(std::vector<State> states, const std::vector<State>& now) const {
  for (State& state : states) {
    if (!has_rows(state)) continue;
    for (auto& [name, tensor] : state.tensors)
      if (const auto rows = wanted()(name, tensor.sizes().vec()))
        tensor = tensor.narrow(0, rows->first, rows->second - rows->first).clone();
    for (const State& own : now)
      if (own.owner == state.owner)
        for (const auto& [name, tensor] : own.tensors)
          if (table_of(name) != nullptr) state.tensors.emplace(name, tensor);
  }
  return states;
}

std::vector<State> OwnRows::without(std::vector<State> states) const {
  for (State& state : states)
    if (has_rows(state))
      std::erase_if(state.tensors, [&](const auto& each) { return table_of(each.first) != nullptr; });
  return states;
}

std::string OwnRows::digest(State state) const {
  State own;
  std::erase_if(state.tensors, [&](const auto& each) {
    if (!rows_of(each.first, each.second)) return false;
    own.scalars[each.first] = trainyard::digest(each.second);
    return true;
  });
  const std::vector<std::vector<State>> ranks = gather(ranks_, std::vector{own});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const auto& [name, rows] : ranks[rank].front().scalars)
      state.scalars["rank/" + std::to_string(rank) + "/" + name] = rows;
  return trainyard::digest(state);
}

}  // namespace trainyard

// Tells which tensors of a state belong to tables whose rows lie on different ranks (ShardsTables): the
// tables themselves, and optimizer state with one row per table row. No rank ever has the rows of another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/helpers/rows_wanted.hpp>
#include <trainyard/network.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/sharded.hpp>
#include <trainyard/state.hpp>

TRAINYARD_CONTRACT("helpers/own_rows.hpp");

namespace trainyard {

/// Splits states by rank. `ranks` outlives it.
class OwnRows {
 public:
  OwnRows(const Network& network, const ShardsTables& tables, Ranks& ranks);

  /// Returns the rows of all ranks of the table that a tensor belongs to by name and shape; nothing: to none.
  std::optional<std::int64_t> rows_of(std::string_view name, const at::Tensor& own) const;
  /// Returns a function that gives this rank's rows of whole tables and of what belongs to them.
  RowsWanted wanted() const;

  /// Returns this rank's part of the saved states of model and optimizer, of a run of one rank or of as many;
  /// where they lack a table, it stays as `now` has it.
  std::vector<State> own(std::vector<State> states, const std::vector<State>& now) const;
  /// Returns the states without the tables and without what belongs to them.
  std::vector<State> without(std::vector<State> states) const;
  /// Returns a digest over those of the rows of each rank, the same on all. A collective that waits.
  std::string digest(State state) const;

 private:
  struct Table {
    std::string name;
    std::int64_t rows;
    std::vector<std::int64_t> own;  ///< shape of this rank's part
  };
  const Table* table_of(std::string_view name) const;

  Ranks& ranks_;
  std::vector<Table> tables_;
};

}  // namespace trainyard

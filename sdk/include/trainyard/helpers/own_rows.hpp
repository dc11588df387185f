// Which tensors of a state belong to the rows of tables that lie in parts on the ranks (ShardsTables): the tables
// themselves, and what an optimizer has of their rows. No rank ever has those of another.
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

/// `ranks` outlives it.
class OwnRows {
 public:
  OwnRows(const Network& network, const ShardsTables& tables, Ranks& ranks);

  /// Of the table that a tensor belongs to by its name and shape, the rows of all ranks; nothing: to none.
  std::optional<std::int64_t> rows_of(std::string_view name, const at::Tensor& own) const;
  /// Of whole tables, and what belongs to them, the rows of this rank.
  RowsWanted wanted() const;

  /// What this rank has of the saved states of model and optimizer, of a run of one rank or of as many; what they
  /// lack of a table stays as `now` has it.
  std::vector<State> own(std::vector<State> states, const std::vector<State>& now) const;
  /// Without anything of the tables.
  std::vector<State> without(std::vector<State> states) const;
  /// Over the digests of the rows that each rank has: the same on all. A collective that waits.
  std::string digest(State state) const;

 private:
  struct Table {
    std::string name;
    std::int64_t rows;
    std::vector<std::int64_t> own;  ///< shape
  };
  const Table* table_of(std::string_view name) const;

  Ranks& ranks_;
  std::vector<Table> tables_;
};

}  // namespace trainyard

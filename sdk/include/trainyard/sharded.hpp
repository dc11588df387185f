// Parameters whose rows lie on different ranks: embedding tables that are too large for each rank to hold
// whole (row-wise model parallelism, Naumov et al., arXiv 1906.00091, section 4.1).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("sharded.hpp");

namespace trainyard {

/// A parameter of which a rank has only its own rows.
struct ShardedTable {
  std::string name;       ///< name of the parameter; its tensor is [own rows, ...]
  std::int64_t rows = 0;  ///< number of rows of all ranks together
};

/// Returns the rows [first, second) that a rank owns.
inline std::pair<std::int64_t, std::int64_t> rows_of_rank(std::int64_t rows, int rank, int ranks) {
  return {rows * rank / ranks, rows * (rank + 1) / ranks};
}

/// A network implements it; the host finds it by dynamic_cast. In training all ranks make the same passes,
/// with the same micro-batches of the same size. The gradient that backward leaves for own rows is the sum
/// over the ranks, and sparse: the rows that any rank looked up. Loop thread.
class ShardsTables {
 public:
  virtual ~ShardsTables() = default;

  virtual std::vector<ShardedTable> sharded() const = 0;

  /// Called before passes that do not train and after them, on all ranks. A rank may make any number of such
  /// passes, of any size; at the end it gives the others its rows until all ranks are done.
  virtual void begin_evaluation() = 0;
  virtual void end_evaluation() = 0;

  /// Sets the listener, of which there is one. It is called in each training pass with the own rows of a
  /// table that any rank looked up, counted from the first own one, as often as they were.
  virtual void on_lookup(
      std::function<void(std::size_t table, std::span<const std::int64_t> rows)> listener) = 0;
};

}  // namespace trainyard

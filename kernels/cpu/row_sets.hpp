// Lists the rows of a matrix that each of some samples uses, and, inversely, the samples that use a row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::kernels {

/// Sample s uses rows[offsets[s]] .. rows[offsets[s + 1] - 1].
struct RowSets {
  std::span<const std::int64_t> offsets, rows;
};

/// Row `rows[r]` is used by the samples sample[offsets[r]] .. sample[offsets[r + 1] - 1], in their order,
/// each by the entry of that place in the sets.
struct RowUses {
  std::vector<std::int64_t> rows;  ///< ascending, each once
  std::vector<std::int64_t> offsets, sample;
  std::vector<std::uint32_t> entry;
};

/// Rows are in [0, count), count <= 2^32, and there are less than 2^32 entries. Takes time for the entries,
/// not for the rows that there are.
RowUses uses_of(const RowSets& sets, std::int64_t count);

}  // namespace trainyard::kernels

// Says which rows of a tensor are read, where the others lie on other ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("helpers/rows_wanted.hpp");

namespace trainyard {

using RowRange = std::pair<std::int64_t, std::int64_t>;  ///< [first, second)

/// Returns the rows that are wanted of a tensor of this name and shape; nothing: all of it.
using RowsWanted =
    std::function<std::optional<RowRange>(const std::string& name, const std::vector<std::int64_t>& shape)>;
inline std::optional<RowRange> all_rows(const std::string&, const std::vector<std::int64_t>&) {
  return std::nullopt;
}

}  // namespace trainyard

// A graph in memory: for each node, those that it takes messages from (compressed sparse rows).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <variant>
#include <vector>

namespace graph {

/// Views, and what keeps them: memory of its own, or a file that is mapped.
struct Csr {
  std::span<const std::int64_t> rowptr;  ///< [nodes + 1]
  /// [edges], ascending within a row: 32 bits where all nodes fit, which halves the memory.
  std::variant<std::span<const std::int32_t>, std::span<const std::int64_t>> col;
  std::shared_ptr<const void> owner;

  std::int64_t nodes() const { return static_cast<std::int64_t>(rowptr.size()) - 1; }
  std::int64_t edges() const { return rowptr.back(); }
  std::int64_t degree(std::int64_t node) const {
    const auto row = static_cast<std::size_t>(node);
    return rowptr[row + 1] - rowptr[row];
  }
};

enum class SelfLoops : std::uint8_t { keep, add, drop };

struct CsrOptions {
  bool undirected = true;  ///< messages go both ways, and an edge that is given twice counts once
  SelfLoops self_loops = SelfLoops::keep;  ///< add: exactly one a node
};

namespace detail {

/// Sorts the rows, leaves out duplicates where `unique`, and moves them together.
template <class Col>
void tidy_rows(std::vector<std::int64_t>& rowptr, std::vector<Col>& col, bool unique) {
  std::int64_t kept = 0;
  for (std::size_t row = 0; row + 1 < rowptr.size(); ++row) {
    const auto begin = col.begin() + rowptr[row], end = col.begin() + rowptr[row + 1];
    std::sort(begin, end);
    const auto last = unique ? std::unique(begin, end) : end;
    rowptr[row] = kept;
    const auto target = col.begin() + kept;
    kept = (target == begin ? last : std::move(begin, last, target)) - col.begin();
  }
  rowptr.back() = kept;
  col.resize(static_cast<std::size_t>(kept));
}

template <class Col>
struct Rows {
  std::vector<std::int64_t> rowptr;
  std::vector<Col> col;
};

template <class Col, class EachEntry>
Csr fill_rows(std::vector<std::int64_t> rowptr, bool unique, const EachEntry& each_entry) {
  const auto rows = std::make_shared<Rows<Col>>();
  rows->col.resize(static_cast<std::size_t>(rowptr.back()));
  std::vector<std::int64_t> next(rowptr.begin(), rowptr.end() - 1);
  each_entry([&](std::int64_t target, std::int64_t source) {
    rows->col[static_cast<std::size_t>(next[static_cast<std::size_t>(target)]++)] = static_cast<Col>(source);
  });
  tidy_rows(rowptr, rows->col, unique);
  rows->rowptr = std::move(rowptr);
  return {rows->rowptr, std::span<const Col>(rows->col), rows};
}

}  // namespace detail

/// `each_edge(visit)` calls visit(source, target) for every edge, in [0, nodes) both; it is called twice and
/// says the same each time, so that edges that are computed need not be kept.
template <class EachEdge>
Csr make_csr(std::int64_t nodes, const CsrOptions& options, const EachEdge& each_edge) {
  const auto each_entry = [&](const auto& add) {
    each_edge([&](std::int64_t source, std::int64_t target) {
      if (source == target) {
        if (options.self_loops == SelfLoops::keep) add(target, source);
        return;
      }
      add(target, source);
      if (options.undirected) add(source, target);
    });
    for (std::int64_t node = 0; options.self_loops == SelfLoops::add && node < nodes; ++node) add(node, node);
  };
  std::vector<std::int64_t> rowptr(static_cast<std::size_t>(nodes) + 1);
  each_entry([&](std::int64_t target, std::int64_t) { ++rowptr[static_cast<std::size_t>(target) + 1]; });
  std::partial_sum(rowptr.begin(), rowptr.end(), rowptr.begin());
  if (nodes <= std::numeric_limits<std::int32_t>::max())
    return detail::fill_rows<std::int32_t>(std::move(rowptr), options.undirected, each_entry);
  return detail::fill_rows<std::int64_t>(std::move(rowptr), options.undirected, each_entry);
}

}  // namespace graph

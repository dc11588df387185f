#include "structure.hpp"

#include <algorithm>
#include <tuple>

namespace doped {
namespace {

std::string product(std::int64_t rows, std::int64_t columns) {
  return "(" + std::to_string(rows) + " x " + std::to_string(columns) + ")";
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return found;
}

/// All Kronecker products of that shape.
std::vector<Structure> kronecker(const Wanted& wanted) {
  std::vector<Structure> found;
  for (const std::int64_t rows : divisors(wanted.rows))
    for (const std::int64_t columns : divisors(wanted.columns))
      found.push_back({.form = Form::kp,
                       .rows = wanted.rows,
                       .columns = wanted.columns,
                       .left_rows = rows,
                       .left_columns = columns,
                       .right_rows = wanted.rows / rows,
                       .right_columns = wanted.columns / columns});
  return found;
}

/// Low rank, or free rows, with as many as `budget` allows, and at least the fewest.
Structure filled(const Wanted& wanted, std::int64_t budget) {
  Structure one{.form = wanted.form,
                .rows = wanted.rows,
                .columns = wanted.columns,
                .rank = 1,
                .blocks = wanted.blocks};
  const std::int64_t rows = wanted.rows / wanted.blocks, least = one.parameters();
  if (budget <= least) return one;
  if (wanted.form == Form::lmf)
    one.rank = std::min(budget / (wanted.rows + wanted.columns), std::min(wanted.rows, wanted.columns));
  else if (wanted.columns > 1)
    one.free_rows = std::min((budget - least) / (wanted.blocks * (wanted.columns - 1)), rows - 1);
  return one;
}

}  // namespace

std::int64_t Structure::parameters() const {
  switch (form) {
    case Form::kp: return left_rows * left_columns + right_rows * right_columns;
    case Form::lmf: return rank * (rows + columns);
    case Form::hmd: return blocks * (free_rows * columns + rows / blocks - free_rows + columns);
  }
  return 0;
}

std::int64_t Structure::most_rank() const {
  switch (form) {
    case Form::kp: return std::min(left_rows, left_columns) * std::min(right_rows, right_columns);
    case Form::lmf: return rank;
    case Form::hmd: return std::min({rows, columns, blocks * (free_rows + 1)});
  }
  return 0;
}

std::int64_t Structure::products() const {
  switch (form) {
    case Form::kp:  // Y = B X C^T, in the cheaper of two orders
      return std::min(left_columns * right_columns * right_rows + left_rows * left_columns * right_rows,
                      left_columns * right_columns * left_rows + left_rows * right_columns * right_rows);
    case Form::lmf: return parameters();
    case Form::hmd: return parameters();
  }
  return 0;
}

std::string Structure::text() const {
  switch (form) {
    case Form::kp: return product(left_rows, left_columns) + " (x) " + product(right_rows, right_columns);
    case Form::lmf: return "rank " + std::to_string(rank);
    case Form::hmd:
      return std::to_string(blocks * free_rows) + " free rows, " + std::to_string(blocks) +
             (blocks == 1 ? " block of rank 1" : " blocks of rank 1");
  }
  return "";
}

Structure largest(const Wanted& wanted, std::int64_t budget) {
  if (wanted.form != Form::kp) return filled(wanted, budget);
  const std::vector<Structure> all = kronecker(wanted);
  return *std::ranges::max_element(all, {}, [&](const Structure& each) {
    const std::int64_t over = std::max<std::int64_t>(0, each.parameters() - budget);
    return std::tuple(-over, each.most_rank(), each.parameters(), -each.products());
  });
}

}  // namespace doped

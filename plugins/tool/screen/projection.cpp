#include "projection.hpp"

#include <algorithm>
#include <cmath>

#include "draws.hpp"
#include "kernels/cpu/for_each_isa.hpp"

namespace screen {
namespace {

std::vector<double> normal_numbers(Draws& draws, std::size_t count) {
  std::vector<double> numbers(count);
  for (double& number : numbers) number = draws.normal();
  return numbers;
}

/// Adds a multiple of one row to another. Compiled for what the processor has.
TRAINYARD_FOR_EACH_ISA void add_multiple(const double* from, double factor, double* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace

Matrix projection_matrix(ProjectionMethod method, std::size_t from, std::size_t to,
                         const trainyard::RandomStream& random) {
  Draws draws(random);
  Matrix result(from, to);
  const double scale = 1.0 / std::sqrt(static_cast<double>(to));
  const bool structured = method == ProjectionMethod::circulant || method == ProjectionMethod::toeplitz;
  // Of a circulant matrix a number depends on the difference of its place's coordinates modulo its size.
  const std::vector<double> numbers =
      structured ? normal_numbers(draws, method == ProjectionMethod::circulant ? from : from + to)
                 : std::vector<double>();
  for (std::size_t i = 0; i < from; ++i)
    for (std::size_t j = 0; j < to; ++j) {
      double number = 0.0;
      if (method == ProjectionMethod::basic) number = draws.normal();
      if (method == ProjectionMethod::discrete) number = draws.uniform() < 0.5 ? -1.0 : 1.0;
      if (structured) number = numbers[(i + numbers.size() - j) % numbers.size()];
      result.row(i)[j] = scale * number;
    }
  return result;
}

Matrix project(const Matrix& rows, const Matrix& projection) {
  Matrix result(rows.rows, projection.columns);
  for (std::size_t i = 0; i < rows.rows; ++i)
    for (std::size_t j = 0; j < rows.columns; ++j)
      add_multiple(projection.row(j).data(), rows.at(i, j), result.row(i).data(), projection.columns);
  return result;
}

}  // namespace screen

// Quantiles as numpy's: between the two next samples on a line.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/core/Tensor.h>

#include "findings.hpp"

namespace rules {

using namespace trainyard;

/// `sorted` is not empty; `share` is within [0, 1].
inline double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

template <class Numbers>
std::vector<double> sorted(const Numbers& numbers) {
  std::vector<double> result(numbers.begin(), numbers.end());
  std::sort(result.begin(), result.end());
  return result;
}

/// The elements of a tensor; none where one of them is NaN.
inline std::vector<double> sorted_numbers(const at::Tensor& tensor) {
  std::vector<double> numbers = numbers_of(tensor);
  if (std::any_of(numbers.begin(), numbers.end(), [](double x) { return std::isnan(x); })) return {};
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace rules

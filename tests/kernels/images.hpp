// Images in blocks of channels, numbers for them, and how far results are from sums in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace trainyard::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Random = std::mt19937_64;

/// [image][channel][row][column] of a few images; blocks of them as the kernels want them.
struct Images {
  std::int64_t count, channels, rows, columns;

  std::size_t at(std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>(((n * channels + c) * rows + y) * columns + x);
  }
  std::int64_t whole(std::int64_t block) const { return (channels + block - 1) / block * block; }
  std::size_t blocked(std::int64_t block, std::int64_t n, std::int64_t c, std::int64_t y,
                      std::int64_t x) const {
    return static_cast<std::size_t>(
        (((n * whole(block) / block + c / block) * rows + y) * columns + x) * block + c % block);
  }
  std::size_t size() const { return static_cast<std::size_t>(count * channels * rows * columns); }

  template <class Each>
  void each(const Each& each) const {
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t y = 0; y < rows; ++y)
          for (std::int64_t x = 0; x < columns; ++x) each(n, c, y, x);
  }
  Floats to_blocks(const Floats& values, std::int64_t block) const {
    Floats found(static_cast<std::size_t>(count * whole(block) * rows * columns));
    each([&](auto n, auto c, auto y, auto x) { found[blocked(block, n, c, y, x)] = values[at(n, c, y, x)]; });
    return found;
  }
  Floats from_blocks(const Floats& values, std::int64_t block) const {
    Floats found(size());
    each([&](auto n, auto c, auto y, auto x) { found[at(n, c, y, x)] = values[blocked(block, n, c, y, x)]; });
    return found;
  }
};

inline Floats normal(std::size_t count, Random& random) {
  std::normal_distribution<float> draw;
  Floats values(count);
  for (float& each : values) each = draw(random);
  return values;
}

/// How far apart, by the largest sum of the sizes of terms: what lies in one tile has the rounding of the largest in it.
inline double worst(const Floats& found, const Doubles& expected, const Doubles& sizes) {
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  double most = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double apart = std::abs(static_cast<double>(found[i]) - expected[i]) / largest;
    most = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(most, apart);
  }
  return most;
}

/// The sums of a convolution's products, with bias and ReLU behind them where there is a bias, and the sums of the products' sizes.
template <class Case>
std::pair<Doubles, Doubles> sums_of(const Case& each, const Floats& x, const Floats& weight,
                                    const Floats* bias) {
  Doubles sums(each.y.size()), sizes(each.y.size());
  each.terms([&](std::size_t y, std::size_t from, std::size_t w) {
    const double term = static_cast<double>(x[from]) * static_cast<double>(weight[w]);
    sums[y] += term;
    sizes[y] += std::abs(term);
  });
  if (bias != nullptr)
    each.y.each([&](auto n, auto c, auto row, auto column) {
      double& y = sums[each.y.at(n, c, row, column)];
      y = std::max(y + static_cast<double>((*bias)[static_cast<std::size_t>(c)]), 0.0);
    });
  return {sums, sizes};
}

inline constexpr double bar = 2e-6;  // some 30 roundings of float

}  // namespace trainyard::test

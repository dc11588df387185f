// Convolutions with fewer products against the plain sums in double precision: sizes that no tile fits, paddings,
// channels that fill no block, in each instruction set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/winograd.hpp"
#include "tests/kernels/images.hpp"
#include "tests/kernels/isas.hpp"

namespace winograd_tests {

namespace {

using namespace trainyard::kernels;
using namespace trainyard::test;

struct Case {
  Images x, y;
  WinogradShape shape;

  Case(std::int64_t count, std::int64_t in, std::int64_t out, std::int64_t rows, std::int64_t columns,
       int kernel, std::int64_t above, std::int64_t below, std::int64_t left, std::int64_t right)
      : x{count, in, rows, columns},
        y{count, out, rows + above + below - kernel + 1, columns + left + right - kernel + 1},
        shape{in, out, rows, columns, y.rows, y.columns, above, left, kernel} {}

  std::size_t weight(std::int64_t o, std::int64_t i, int row, int column) const {
    return static_cast<std::size_t>(((o * shape.in + i) * shape.kernel + row) * shape.kernel + column);
  }
  std::size_t weights() const { return weight(shape.out, 0, 0, 0); }

  /// Calls term(place in y, place in x, place in the weight) for each product of the convolution.
  template <class Term>
  void terms(const Term& term) const {
    y.each([&](auto n, auto o, auto row, auto column) {
      for (std::int64_t i = 0; i < shape.in; ++i)
        for (int u = 0; u < shape.kernel; ++u)
          for (int v = 0; v < shape.kernel; ++v) {
            const std::int64_t from_row = row + u - shape.rows_before,
                               from_column = column + v - shape.columns_before;
            if (from_row < 0 || from_column < 0 || from_row >= x.rows || from_column >= x.columns) continue;
            term(y.at(n, o, row, column), x.at(n, i, from_row, from_column), weight(o, i, u, v));
          }
    });
  }
};

const Case cases[] = {
    {2, 16, 16, 13, 9, 3, 1, 1, 1, 1}, {3, 5, 40, 8, 8, 3, 1, 1, 1, 1},   {2, 33, 7, 6, 11, 3, 0, 0, 0, 0},
    {2, 3, 20, 5, 5, 3, 2, 2, 2, 2},   {1, 1, 1, 3, 3, 3, 0, 0, 0, 0},    {2, 16, 8, 10, 7, 3, 0, 2, 1, 0},
    {30, 4, 16, 9, 9, 3, 1, 1, 1, 1},  {2, 6, 16, 14, 14, 5, 0, 0, 0, 0}, {2, 17, 16, 7, 12, 5, 2, 2, 2, 2},
    {3, 8, 8, 5, 6, 5, 4, 4, 4, 4},    {1, 2, 3, 9, 5, 5, 1, 3, 0, 4},
};

const WinogradKernels& kernels_of(Isa isa) {
  return winograd_kernels(isa);
}

TEST_CASE("A convolution with fewer products is the convolution", "[winograd]") {
  Random random(5);
  for (const Isa isa : isas())
    for (const Case& each : cases)
      for (const bool fused : {false, true}) {
        const WinogradKernels& kernels = kernels_of(isa);
        const std::int64_t block = kernels.block;
        INFO("block " << block << ", kernel " << each.shape.kernel << ", " << each.shape.in << " to "
                      << each.shape.out << " channels, " << each.x.rows << " x " << each.x.columns);
        const Floats x = normal(each.x.size(), random), weight = normal(each.weights(), random);
        Floats bias = normal(static_cast<std::size_t>(each.shape.out), random);
        const auto [expected, sizes] = sums_of(each, x, weight, fused ? &bias : nullptr);
        bias.resize(static_cast<std::size_t>(each.y.whole(block)));

        const Floats blocks = each.x.to_blocks(x, block);
        Floats y = each.y.to_blocks(Floats(each.y.size(), 7.0f), block);
        Floats filters(static_cast<std::size_t>(kernels.filter_floats(each.shape)));
        Floats scratch(static_cast<std::size_t>(kernels.scratch_floats(each.shape)));
        kernels.transform(each.shape, weight.data(), filters.data());
        const WinogradConvolution what{.shape = each.shape,
                                       .x = blocks.data(),
                                       .filters = filters.data(),
                                       .bias = fused ? bias.data() : nullptr,
                                       .relu = fused,
                                       .y = y.data(),
                                       .scratch = scratch.data()};
        kernels.convolve(what, 0, each.x.count);
        CHECK(worst(each.y.from_blocks(y, block), expected, sizes) < bar);
        // Channels that fill up the last block are zeros, and images have their bits whoever makes them.
        const Floats whole = y;
        CHECK(each.y.to_blocks(each.y.from_blocks(y, block), block) == whole);
        std::fill(y.begin(), y.end(), 7.0f);
        for (std::int64_t n = each.x.count; n-- > 0;) kernels.convolve(what, n, n + 1);
        CHECK(y == whole);
      }
}

TEST_CASE("The gradient of the inputs of such a convolution is one too", "[winograd]") {
  Random random(6);
  for (const Isa isa : isas())
    for (const Case& each : cases) {
      const WinogradKernels& kernels = kernels_of(isa);
      INFO("block " << kernels.block << ", kernel " << each.shape.kernel << ", " << each.x.rows << " x "
                    << each.x.columns);
      const Floats given = normal(each.y.size(), random), weight = normal(each.weights(), random);
      Doubles expected(each.x.size()), sizes(each.x.size());
      each.terms([&](std::size_t y, std::size_t x, std::size_t w) {
        const double term = static_cast<double>(given[y]) * static_cast<double>(weight[w]);
        expected[x] += term;
        sizes[x] += std::abs(term);
      });
      const WinogradShape back = each.shape.back();
      const Floats blocks = each.y.to_blocks(given, kernels.block);
      Floats found = each.x.to_blocks(Floats(each.x.size(), 7.0f), kernels.block);
      Floats filters(static_cast<std::size_t>(kernels.filter_floats(back)));
      Floats scratch(static_cast<std::size_t>(kernels.scratch_floats(back)));
      kernels.transform_back(each.shape, weight.data(), filters.data());
      kernels.convolve({.shape = back,
                        .x = blocks.data(),
                        .filters = filters.data(),
                        .y = found.data(),
                        .scratch = scratch.data()},
                       0, each.x.count);
      CHECK(worst(each.x.from_blocks(found, kernels.block), expected, sizes) < bar);
    }
}

TEST_CASE("The gradient of the weights is the sum over images, however they are shared out", "[winograd]") {
  Random random(7);
  for (const Isa isa : isas())
    for (const Case& each : cases) {
      const WinogradKernels& kernels = kernels_of(isa);
      INFO("block " << kernels.block << ", kernel " << each.shape.kernel << ", " << each.x.rows << " x "
                    << each.x.columns);
      const Floats x = normal(each.x.size(), random), given = normal(each.y.size(), random);
      Doubles expected(each.weights()), sizes(each.weights());
      each.terms([&](std::size_t y, std::size_t from, std::size_t w) {
        const double term = static_cast<double>(x[from]) * static_cast<double>(given[y]);
        expected[w] += term;
        sizes[w] += std::abs(term);
      });
      const Floats x_blocks = each.x.to_blocks(x, kernels.block),
                   y_blocks = each.y.to_blocks(given, kernels.block);
      Floats gradient(static_cast<std::size_t>(kernels.filter_floats(each.shape)));
      Floats scratch(static_cast<std::size_t>(kernels.scratch_floats(each.shape)));
      Floats found(each.weights());
      const WinogradWeights what{.shape = each.shape,
                                 .x = x_blocks.data(),
                                 .given = y_blocks.data(),
                                 .gradient = gradient.data(),
                                 .scratch = scratch.data()};
      kernels.weights(what, 0, each.x.count / 2);
      kernels.weights(what, each.x.count / 2, each.x.count);
      kernels.weights_end(each.shape, gradient.data(), found.data());
      CHECK(worst(found, expected, sizes) < bar);
    }
}

TEST_CASE("NaN stays NaN through a ReLU of a convolution", "[winograd]") {
  for (const Isa isa : isas()) {
    const WinogradKernels& kernels = kernels_of(isa);
    const Case each(1, 1, 1, 4, 4, 3, 1, 1, 1, 1);
    Floats x(16), weight(9, 1.0f);
    x[5] = std::numeric_limits<float>::quiet_NaN();
    const Floats blocks = each.x.to_blocks(x, kernels.block);
    Floats y = each.y.to_blocks(Floats(16), kernels.block);
    Floats filters(static_cast<std::size_t>(kernels.filter_floats(each.shape)));
    Floats scratch(static_cast<std::size_t>(kernels.scratch_floats(each.shape)));
    kernels.transform(each.shape, weight.data(), filters.data());
    kernels.convolve({.shape = each.shape,
                      .x = blocks.data(),
                      .filters = filters.data(),
                      .relu = true,
                      .y = y.data(),
                      .scratch = scratch.data()},
                     0, 1);
    CHECK(std::isnan(y[0]));
  }
}

}  // namespace

}  // namespace winograd_tests

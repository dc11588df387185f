// Convolutions in groups of few channels against the plain sums in double precision: groups that share a block of channels, kernels and
// images that are no squares, paddings, in each instruction set.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "kernels/cpu/grouped_conv.hpp"
#include "tests/kernels/images.hpp"
#include "tests/kernels/isas.hpp"

namespace grouped_conv_tests {

namespace {

using namespace trainyard::kernels;
using namespace trainyard::test;

struct Sides {
  std::int64_t before, after;
};

struct Case {
  Images x, y;
  GroupedConvShape shape;

  Case(std::int64_t count, std::int64_t groups, std::int64_t in, std::int64_t out, std::int64_t rows,
       std::int64_t columns, std::int64_t kernel_rows, std::int64_t kernel_columns, Sides above, Sides beside)
      : x{count, groups * in, rows, columns},
        y{count, groups * out, rows + above.before + above.after - kernel_rows + 1,
          columns + beside.before + beside.after - kernel_columns + 1},
        shape{groups,    in,           out,           rows,        columns,       y.rows,
              y.columns, above.before, beside.before, kernel_rows, kernel_columns} {}

  std::size_t weight(std::int64_t channel, std::int64_t i, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(
        ((channel * shape.in + i) * shape.kernel_rows + row) * shape.kernel_columns + column);
  }
  std::size_t weights() const { return weight(y.channels, 0, 0, 0); }

  /// Calls term(place in y, place in x, place in the weight) for each product of the convolution.
  template <class Term>
  void terms(const Term& term) const {
    y.each([&](auto n, auto channel, auto row, auto column) {
      for (std::int64_t i = 0; i < shape.in; ++i)
        for (std::int64_t u = 0; u < shape.kernel_rows; ++u)
          for (std::int64_t v = 0; v < shape.kernel_columns; ++v) {
            const std::int64_t from_row = row + u - shape.rows_before,
                               from_column = column + v - shape.columns_before;
            if (from_row < 0 || from_column < 0 || from_row >= x.rows || from_column >= x.columns) continue;
            term(y.at(n, channel, row, column),
                 x.at(n, channel / shape.out * shape.in + i, from_row, from_column),
                 weight(channel, i, u, v));
          }
    });
  }
};

const Case cases[] = {
    {3, 8, 6, 16, 14, 14, 5, 5, {0, 0}, {0, 0}}, {2, 3, 3, 32, 7, 9, 3, 3, {1, 1}, {1, 1}},
    {2, 1, 6, 13, 9, 5, 5, 5, {2, 2}, {2, 2}},   {3, 5, 10, 16, 6, 6, 3, 3, {2, 2}, {1, 2}},
    {1, 2, 1, 16, 9, 9, 6, 1, {1, 0}, {4, 4}},   {2, 2, 32, 16, 3, 3, 1, 1, {0, 0}, {0, 0}},
    {2, 17, 1, 16, 4, 33, 2, 4, {1, 0}, {3, 0}}, {1, 4, 4, 48, 2, 1, 7, 7, {6, 5}, {6, 6}},
    {2, 2, 11, 16, 1, 30, 1, 2, {0, 0}, {0, 1}},
};

template <class Use>
void each_case(const Use& use) {
  for (const Isa isa : isas())
    for (const Case& each : cases) {
      const GroupedConvKernels& kernels = grouped_conv_kernels(isa);
      INFO("block " << kernels.block << ", " << each.shape.groups << " groups of " << each.shape.in << " to "
                    << each.shape.out << " channels, " << each.x.rows << " x " << each.x.columns);
      REQUIRE(kernels.fits(each.shape));
      use(kernels, each);
    }
}

Floats floats(std::int64_t count, float value = std::numeric_limits<float>::quiet_NaN()) {
  return Floats(static_cast<std::size_t>(count), value);
}

TEST_CASE("A convolution in narrow groups is the convolution, with bias and ReLU", "[grouped_conv]") {
  Random random(5);
  each_case([&](const GroupedConvKernels& kernels, const Case& each) {
    for (const bool fused : {false, true}) {
      const Floats x = normal(each.x.size(), random), weight = normal(each.weights(), random);
      Floats bias = normal(static_cast<std::size_t>(each.y.channels), random);
      const auto [expected, sizes] = sums_of(each, x, weight, fused ? &bias : nullptr);
      bias.resize(static_cast<std::size_t>(each.y.whole(kernels.block)));
      const Floats blocks = each.x.to_blocks(x, kernels.block);
      Floats y = each.y.to_blocks(Floats(each.y.size(), 7.0f), kernels.block);
      Floats filters = floats(kernels.filter_floats(each.shape)),
             scratch = floats(kernels.scratch_floats(each.shape));
      kernels.pack(each.shape, weight.data(), filters.data());
      const GroupedConv what{.shape = each.shape,
                             .x = blocks.data(),
                             .filters = filters.data(),
                             .bias = fused ? bias.data() : nullptr,
                             .relu = fused,
                             .y = y.data(),
                             .scratch = scratch.data()};
      kernels.forward(what, 0, each.x.count);
      CHECK(worst(each.y.from_blocks(y, kernels.block), expected, sizes) < bar);
      // Channels that fill up the last block are zeros, and images have their bits whoever makes them.
      const Floats whole = y;
      CHECK(each.y.to_blocks(each.y.from_blocks(y, kernels.block), kernels.block) == whole);
      std::fill(y.begin(), y.end(), 7.0f);
      for (std::int64_t n = each.x.count; n-- > 0;) kernels.forward(what, n, n + 1);
      CHECK(y == whole);
    }
  });
}

TEST_CASE("The gradients of such a convolution", "[grouped_conv]") {
  Random random(6);
  each_case([&](const GroupedConvKernels& kernels, const Case& each) {
    const Floats x = normal(each.x.size(), random), given = normal(each.y.size(), random),
                 weight = normal(each.weights(), random);
    Doubles of_x(each.x.size()), x_sizes(each.x.size()), of_weight(each.weights()),
        weight_sizes(each.weights());
    each.terms([&](std::size_t y, std::size_t from, std::size_t w) {
      const double to_x = static_cast<double>(given[y]) * static_cast<double>(weight[w]),
                   to_weight = static_cast<double>(given[y]) * static_cast<double>(x[from]);
      of_x[from] += to_x;
      x_sizes[from] += std::abs(to_x);
      of_weight[w] += to_weight;
      weight_sizes[w] += std::abs(to_weight);
    });
    const Floats x_blocks = each.x.to_blocks(x, kernels.block),
                 y_blocks = each.y.to_blocks(given, kernels.block);
    // Behind the images lies something that is to stay.
    Floats found(x_blocks.size() + 1, 7.0f), gradient = floats(static_cast<std::int64_t>(each.weights()));
    Floats filters = floats(kernels.filter_floats(each.shape)),
           scratch = floats(kernels.scratch_floats(each.shape)),
           sums = floats(kernels.filter_floats(each.shape), 0.0f);
    kernels.pack_back(each.shape, weight.data(), filters.data());
    const GroupedConv what{.shape = each.shape,
                           .x = x_blocks.data(),
                           .filters = filters.data(),
                           .given = y_blocks.data(),
                           .x_gradient = found.data(),
                           .sums = sums.data(),
                           .scratch = scratch.data()};
    for (std::int64_t n = each.x.count; n-- > 0;) kernels.data(what, n, n + 1);
    CHECK(found.back() == 7.0f);
    found.pop_back();
    CHECK(worst(each.x.from_blocks(found, kernels.block), of_x, x_sizes) < bar);
    CHECK(each.x.to_blocks(each.x.from_blocks(found, kernels.block), kernels.block) == found);
    kernels.weights(what, 0, each.x.count / 2);
    kernels.weights(what, each.x.count / 2, each.x.count);
    kernels.unpack(each.shape, sums.data(), gradient.data());
    CHECK(worst(gradient, of_weight, weight_sizes) < bar);
  });
}

TEST_CASE("What is not a number in one group stays in it", "[grouped_conv]") {
  Random random(7);
  each_case([&](const GroupedConvKernels& kernels, const Case& each) {
    const auto run = [&](bool spoilt, Floats& y, Floats& x_gradient, Floats& of_weight) {
      Random same(8);
      Floats x = normal(each.x.size(), same), given = normal(each.y.size(), same),
             weight = normal(each.weights(), same);
      const auto spoil = [&](const Images& images, Floats& values, std::int64_t channels) {
        images.each([&](auto n, auto c, auto row, auto column) {
          if (c < channels) values[images.at(n, c, row, column)] = std::numeric_limits<float>::infinity();
        });
      };
      if (spoilt) {
        spoil(each.x, x, each.shape.in);
        spoil(each.y, given, each.shape.out);
      }
      const Floats x_blocks = each.x.to_blocks(x, kernels.block),
                   y_blocks = each.y.to_blocks(given, kernels.block);
      y = each.y.to_blocks(Floats(each.y.size()), kernels.block);
      x_gradient = each.x.to_blocks(Floats(each.x.size()), kernels.block);
      Floats filters = floats(kernels.filter_floats(each.shape)), back = filters, sums = filters,
             scratch = floats(kernels.scratch_floats(each.shape));
      std::fill(sums.begin(), sums.end(), 0.0f);
      of_weight = weight;
      kernels.pack(each.shape, weight.data(), filters.data());
      kernels.pack_back(each.shape, weight.data(), back.data());
      GroupedConv what{.shape = each.shape,
                       .x = x_blocks.data(),
                       .filters = filters.data(),
                       .y = y.data(),
                       .given = y_blocks.data(),
                       .x_gradient = x_gradient.data(),
                       .sums = sums.data(),
                       .scratch = scratch.data()};
      kernels.forward(what, 0, each.x.count);
      kernels.weights(what, 0, each.x.count);
      kernels.unpack(each.shape, sums.data(), of_weight.data());
      what.filters = back.data();
      kernels.data(what, 0, each.x.count);
    };
    Floats y, x, w, spoilt_y, spoilt_x, spoilt_w;
    run(false, y, x, w);
    run(true, spoilt_y, spoilt_x, spoilt_w);
    const auto rest = [&](const Images& images, const Floats& values, std::int64_t channels) {
      Floats kept;
      const Floats plain = images.from_blocks(values, kernels.block);
      images.each([&](auto n, auto c, auto row, auto column) {
        if (c >= channels) kept.push_back(plain[images.at(n, c, row, column)]);
      });
      return kept;
    };
    CHECK(rest(each.y, y, each.shape.out) == rest(each.y, spoilt_y, each.shape.out));
    CHECK(rest(each.x, x, each.shape.in) == rest(each.x, spoilt_x, each.shape.in));
    const auto own = static_cast<std::ptrdiff_t>(each.weight(each.shape.out, 0, 0, 0));
    CHECK(Floats(w.begin() + own, w.end()) == Floats(spoilt_w.begin() + own, spoilt_w.end()));
    CHECK(std::any_of(spoilt_y.begin(), spoilt_y.end(), [](float each) { return !std::isfinite(each); }));
  });
}

TEST_CASE("NaN stays NaN through the ReLU of a convolution in groups", "[grouped_conv]") {
  for (const Isa isa : isas()) {
    const GroupedConvKernels& kernels = grouped_conv_kernels(isa);
    const Case each(1, 2, 1, 16, 4, 4, 3, 3, {1, 1}, {1, 1});
    Floats x(32), weight(each.weights(), 1.0f);
    x[5] = std::numeric_limits<float>::quiet_NaN();
    const Floats blocks = each.x.to_blocks(x, kernels.block);
    Floats y = each.y.to_blocks(Floats(each.y.size()), kernels.block);
    Floats filters = floats(kernels.filter_floats(each.shape)),
           scratch = floats(kernels.scratch_floats(each.shape));
    kernels.pack(each.shape, weight.data(), filters.data());
    kernels.forward({.shape = each.shape,
                     .x = blocks.data(),
                     .filters = filters.data(),
                     .relu = true,
                     .y = y.data(),
                     .scratch = scratch.data()},
                    0, 1);
    CHECK(std::isnan(y[0]));
  }
}

TEST_CASE("Groups for which there is no kernel", "[grouped_conv]") {
  for (const Isa isa : isas()) {
    const GroupedConvKernels& kernels = grouped_conv_kernels(isa);
    CHECK_FALSE(kernels.fits(Case(1, 2, 7, 16, 9, 9, 5, 5, {0, 0}, {0, 0}).shape));
    CHECK_FALSE(kernels.fits(Case(1, 2, 2, 12, 9, 9, 5, 5, {0, 0}, {0, 0}).shape));
  }
}

}  // namespace

}  // namespace grouped_conv_tests

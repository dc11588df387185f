// The largest of windows against one window after another, forward and back, in each instruction set.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/max_pool.hpp"

namespace max_pool_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;

constexpr std::int64_t planes = 3;

/// Few numbers, so that many are equal, and some that are none.
Floats drawn(std::int64_t count, bool with_nan) {
  std::mt19937 random(11);
  Floats numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(with_nan && random() % 13 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                     : static_cast<float>(random() % 9) - 5.0F);
  return numbers;
}

bool same(const Floats& a, const Floats& b) {  // NaN too
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Expected {
  Floats y, x_gradient;
};

Expected expected(const MaxPool& p, const Floats& x, const Floats& given) {
  Expected result{{}, Floats(x.size(), 0.0F)};
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t r = 0; r < p.out_rows; ++r)
      for (std::int64_t c = 0; c < p.out_columns; ++c) {
        float best = -std::numeric_limits<float>::infinity();
        std::size_t place = 0;
        for (std::int64_t i = 0; i < p.kernel_rows; ++i)
          for (std::int64_t j = 0; j < p.kernel_columns; ++j) {
            const auto at = static_cast<std::size_t>((plane * p.rows + r * p.row_stride + i) * p.columns +
                                                     c * p.column_stride + j);
            if (!(x[at] > best) && !std::isnan(x[at])) continue;
            best = x[at];
            place = at;
          }
        const bool is_dead = p.relu && best <= 0.0F;
        if (!is_dead) result.x_gradient[place] += given[result.y.size()];
        result.y.push_back(is_dead ? 0.0F : best);
      }
  return result;
}

}  // namespace

TEST_CASE("the largest of windows is what looking at each of them finds", "[max_pool]") {
  const std::int64_t sizes[][6] = {{28, 28, 2, 2, 2, 2}, {10, 10, 2, 2, 2, 2}, {7, 9, 3, 3, 2, 2},
                                   {5, 40, 2, 3, 1, 1},  {9, 13, 4, 2, 3, 3},  {1, 1, 1, 1, 1, 1},
                                   {6, 37, 1, 5, 2, 4}};
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    for (const auto& [rows, columns, kernel_rows, kernel_columns, row_stride, column_stride] : sizes)
      for (const bool relu : {false, true})
        for (const bool with_nan : {false, true}) {
          if (!supported(isa)) continue;
          INFO("instruction set " << static_cast<int>(isa) << ", " << rows << " x " << columns
                                  << (relu ? ", ReLU" : "") << (with_nan ? ", NaN" : ""));
          MaxPool p{.rows = rows,
                    .columns = columns,
                    .out_rows = (rows - kernel_rows) / row_stride + 1,
                    .out_columns = (columns - kernel_columns) / column_stride + 1,
                    .kernel_rows = kernel_rows,
                    .kernel_columns = kernel_columns,
                    .row_stride = row_stride,
                    .column_stride = column_stride,
                    .relu = relu};
          const Floats x = drawn(planes * rows * columns, with_nan);
          const Floats given = drawn(planes * p.out_rows * p.out_columns, false);
          Floats y(given.size()), x_gradient(x.size(), 7.0F);
          std::vector<std::int32_t> places(given.size());
          p.x = x.data();
          p.y = y.data();
          p.place = places.data();
          p.given = given.data();
          p.x_gradient = x_gradient.data();
          for (const auto& [begin, end] : {std::pair(1, 3), std::pair(0, 1)}) {
            max_pool_kernels(isa).forward(p, begin, end);
            max_pool_kernels(isa).backward(p, begin, end);
          }
          const Expected all = expected(p, x, given);
          CHECK(same(y, all.y));
          CHECK(same(x_gradient, all.x_gradient));
        }
}

}  // namespace max_pool_tests

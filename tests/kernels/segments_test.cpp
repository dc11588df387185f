// Sums, maxima and products over the rows of sparse matrices against loops in double, on every instruction
// set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/segments.hpp"
#include "tests/kernels/isas.hpp"

namespace segments_tests {

namespace {

using namespace trainyard::kernels;
using Indices = std::vector<std::int64_t>;
using Random = std::mt19937_64;

constexpr std::int64_t widths[] = {1,  2,  3,   4,   7,   8,   15,  16,  17, 31,
                                   33, 64, 100, 127, 128, 129, 130, 255, 513};

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// Rows of 0 to 5 entries, empty ones among them, one of 40, and entries that are there twice.
struct Matrix {
  std::int64_t columns = 23;
  Indices offsets = {0}, column;

  explicit Matrix(std::uint64_t seed, std::int64_t rows = 17) {
    Random random(seed);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t count = r == 4 ? 40 : static_cast<std::int64_t>(random() % 6);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool again = i > 0 && random() % 4 == 0;
        column.push_back(again ? column.back() : static_cast<std::int64_t>(random() % 23));
      }
      offsets.push_back(std::ssize(column));
    }
  }
  Segments segments() const { return {std::ssize(offsets) - 1, offsets.data(), column.data()}; }
};

template <class T>
std::vector<T> normal(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::normal_distribution<double> draw;
  std::vector<T> values(at(count));
  for (T& each : values) each = static_cast<T>(draw(random));
  return values;
}

template <class T>
bool close(const std::vector<T>& found, const std::vector<double>& expected) {
  const double tolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(static_cast<double>(found[i]) - expected[i]) <= tolerance * (1 + std::abs(expected[i]))))
      return false;
  return true;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Elements that a kernel shall not touch show; so does one that it leaves out.
template <class T>
constexpr T untouched = static_cast<T>(-7.25);

template <class T>
struct Sum {
  const Matrix& matrix;
  std::int64_t heads, width;
  std::vector<T> x, weight;
  Indices weight_row;

  Sum(const Matrix& of, std::int64_t heads_, std::int64_t width_, bool weighted, bool by_row)
      : matrix(of), heads(heads_), width(width_), x(normal<T>(of.columns * heads * width, 3)) {
    if (weighted) weight = normal<T>(std::ssize(of.column) * heads, 4);
    for (std::int64_t e = 0; by_row && e < std::ssize(of.column); ++e)
      weight_row.push_back(e * 7 % std::ssize(of.column));
  }

  std::vector<double> expected() const {
    std::vector<double> y(at((std::ssize(matrix.offsets) - 1) * heads * width), 0.0);
    for (std::int64_t r = 0; r + 1 < std::ssize(matrix.offsets); ++r)
      for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < width; ++i) {
            const std::int64_t row = weight_row.empty() ? e : weight_row[at(e)];
            const double w = weight.empty() ? 1.0 : static_cast<double>(weight[at(row * heads + h)]);
            y[at((r * heads + h) * width + i)] +=
                w * static_cast<double>(x[at((matrix.column[at(e)] * heads + h) * width + i)]);
          }
    return y;
  }

  /// In so many parts.
  std::vector<T> found(Isa isa, std::int64_t parts) const {
    std::vector<T> y(at((std::ssize(matrix.offsets) - 1) * heads * width), untouched<T>);
    const SegmentSum<T> what{.segments = matrix.segments(),
                             .heads = heads,
                             .width = width,
                             .x = x.data(),
                             .weight = weight.empty() ? nullptr : weight.data(),
                             .weight_row = weight_row.empty() ? nullptr : weight_row.data(),
                             .y = y.data()};
    for (std::int64_t part = 0; part < parts; ++part)
      sum(isa, what, balanced_row(what.segments, parts, part), balanced_row(what.segments, parts, part + 1));
    return y;
  }
};

template <class T>
void check_sums() {
  const Matrix matrix(1);
  for (const std::int64_t width : widths)
    for (const std::int64_t heads : {1, 3})
      for (const auto& [weighted, by_row] : {std::pair(false, false), {true, false}, {true, true}}) {
        const Sum<T> sum(matrix, heads, width, weighted, by_row);
        const std::vector<double> expected = sum.expected();
        const std::vector<T> portable = sum.found(Isa::portable, 1);
        for (const Isa isa : isas()) {
          INFO("width " << width << ", heads " << heads << ", weights " << weighted << by_row << ", isa "
                        << static_cast<int>(isa));
          const std::vector<T> found = sum.found(isa, 1);
          CHECK(close(found, expected));
          CHECK(same_bits(found, sum.found(isa, 2)));
          CHECK(same_bits(found, sum.found(isa, 5)));
          if (!weighted) CHECK(same_bits(found, portable));
        }
      }
}

template <class T>
struct Maximum {
  std::vector<T> y;
  std::vector<std::int32_t> entry;

  Maximum(Isa isa, const Matrix& matrix, const std::vector<T>& x, std::int64_t width)
      : y(at((std::ssize(matrix.offsets) - 1) * width), untouched<T>), entry(y.size(), -2) {
    const SegmentMax<T> what{
        .segments = matrix.segments(), .width = width, .x = x.data(), .y = y.data(), .entry = entry.data()};
    maximum(isa, what, 0, 9);
    maximum(isa, what, 9, what.segments.rows);
  }
};

template <class T>
void check_maxima() {
  const Matrix matrix(2);
  for (const std::int64_t width : widths) {
    std::vector<T> x = normal<T>(matrix.columns * width, 5);
    for (T& each : x) each = std::round(each * 2);  // so that several are the largest
    for (const Isa isa : isas()) {
      INFO("width " << width << ", isa " << static_cast<int>(isa));
      const Maximum<T> found(isa, matrix, x, width);
      bool right = true;
      for (std::int64_t r = 0; r + 1 < std::ssize(matrix.offsets); ++r)
        for (std::int64_t i = 0; i < width; ++i) {
          T largest = 0;
          std::int64_t first = -1;
          for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e) {
            const T value = x[at(matrix.column[at(e)] * width + i)];
            if (first < 0 || value > largest) {
              largest = value;
              first = e;
            }
          }
          right &= found.y[at(r * width + i)] == largest && found.entry[at(r * width + i)] == first;
        }
      CHECK(right);
    }
  }
}

template <class T>
void check_dots() {
  const Matrix matrix(3);
  const std::int64_t rows = std::ssize(matrix.offsets) - 1, entries = std::ssize(matrix.column);
  for (const std::int64_t width : widths)
    for (const std::int64_t heads : {1, 4}) {
      const std::vector<T> g = normal<T>(rows * heads * width, 6);
      const std::vector<T> x = normal<T>(matrix.columns * heads * width, 7);
      std::vector<double> expected(at(entries * heads), 0.0);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e)
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t i = 0; i < width; ++i)
              expected[at(e * heads + h)] +=
                  static_cast<double>(g[at((r * heads + h) * width + i)]) *
                  static_cast<double>(x[at((matrix.column[at(e)] * heads + h) * width + i)]);
      for (const Isa isa : isas()) {
        INFO("width " << width << ", heads " << heads << ", isa " << static_cast<int>(isa));
        std::vector<T> found(expected.size(), untouched<T>);
        const SegmentDots<T> what{.segments = matrix.segments(),
                                  .heads = heads,
                                  .width = width,
                                  .g = g.data(),
                                  .x = x.data(),
                                  .product = found.data()};
        dots(isa, what, 0, 3);
        dots(isa, what, 3, rows);
        // A product of 513 numbers in float is a few of their roundings off.
        std::vector<double> scaled = expected;
        CHECK(std::ranges::equal(found, scaled, [&](T a, double b) {
          return std::abs(static_cast<double>(a) - b) <= (sizeof(T) == 8 ? 1e-11 : 3e-5) * (1 + std::abs(b));
        }));
      }
    }
}

}  // namespace

TEST_CASE("sums over rows are those of loops, the same bits in any number of parts", "[segments]") {
  check_sums<float>();
  check_sums<double>();
}

TEST_CASE("a row is shared out whole, and all rows are", "[segments]") {
  for (const std::int64_t rows : {0, 1, 5, 17, 300}) {
    const Matrix matrix(4, rows);
    const Segments segments = matrix.segments();
    for (const std::int64_t parts : {1, 2, 3, 16, 1000}) {
      CHECK(balanced_row(segments, parts, 0) == 0);
      CHECK(balanced_row(segments, parts, parts) == rows);
      for (std::int64_t part = 0; part < parts; ++part)
        CHECK(balanced_row(segments, parts, part) <= balanced_row(segments, parts, part + 1));
    }
  }
  // Two rows of 1000 and 998 of none: the work of each of two threads is a row.
  Indices offsets = {0, 1000, 2000}, column(2000, 0);
  offsets.resize(1001, 2000);
  CHECK(balanced_row({1000, offsets.data(), column.data()}, 2, 1) == 2);
  offsets.assign(1001, 0);  // rows without entries are work, too
  CHECK(balanced_row({1000, offsets.data(), column.data()}, 2, 1) == 500);
}

TEST_CASE("maxima are those of loops, and of several the first", "[segments]") {
  check_maxima<float>();
  check_maxima<double>();
}

TEST_CASE("NaN is the largest, wherever it stands", "[segments]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Matrix matrix(0, 0);
  matrix.offsets = {0, 3, 6};
  matrix.column = {0, 1, 2, 2, 0, 1};
  matrix.offsets.insert(matrix.offsets.end(), 10, 6);
  std::vector<float> x(at(matrix.columns * 20), 1.0f);
  for (std::int64_t i = 0; i < 20; ++i) x[at(20 + i)] = nan;  // row 1
  for (const Isa isa : isas()) {
    const Maximum<float> found(isa, matrix, x, 20);
    CHECK(std::isnan(found.y[7]));
    CHECK(found.entry[7] == 1);
    CHECK(std::isnan(found.y[20 + 19]));
    CHECK(found.entry[20 + 19] == 5);
  }
}

TEST_CASE("the gradient of a maximum goes to where it came from", "[segments]") {
  const Matrix matrix(5);
  const std::int64_t width = 19, rows = std::ssize(matrix.offsets) - 1;
  const std::vector<double> x = normal<double>(matrix.columns * width, 8),
                            dy = normal<double>(rows * width, 9);
  Maximum<double> of(Isa::portable, matrix, x, width);
  const SegmentMax<double> what{.segments = matrix.segments(), .width = width, .entry = of.entry.data()};
  std::vector<double> dx(x.size(), 0.0), expected(x.size(), 0.0);
  add_maximum_gradient(what, dy.data(), dx.data(), 0, 6);
  add_maximum_gradient(what, dy.data(), dx.data(), 6, width);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e)
        if (x[at(matrix.column[at(e)] * width + i)] == of.y[at(r * width + i)]) {
          expected[at(matrix.column[at(e)] * width + i)] += dy[at(r * width + i)];
          break;
        }
  CHECK(close(dx, expected));
}

TEST_CASE("products of rows are those of loops", "[segments]") {
  check_dots<float>();
  check_dots<double>();
}

TEST_CASE("entries that name rows by their own numbers add up their own", "[segments]") {
  Indices offsets = {0, 2, 2, 5};
  const std::vector<float> x = {1, 10, 2, 20, 4, 40, 8, 80, 16, 160};
  std::vector<float> y(6, untouched<float>);
  for (const Isa isa : isas()) {
    sum(isa,
        SegmentSum<float>{.segments = {3, offsets.data(), nullptr}, .width = 2, .x = x.data(), .y = y.data()},
        0, 3);
    CHECK(y == std::vector<float>{3, 30, 0, 0, 28, 280});
  }
}

TEST_CASE("softmax over rows is that of loops, whatever is added to a row", "[segments]") {
  const Matrix matrix(6);
  const Segments segments = matrix.segments();
  for (const std::int64_t heads : {1, 2, 5}) {
    const std::int64_t count = segments.entries() * heads;
    std::vector<double> x = normal<double>(count, 10), y(at(count), -1.0), expected(at(count));
    for (std::int64_t r = 0; r < segments.rows; ++r)
      for (std::int64_t h = 0; h < heads; ++h) {
        double total = 0;
        for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e)
          total += std::exp(x[at(e * heads + h)]);
        for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e) {
          expected[at(e * heads + h)] = std::exp(x[at(e * heads + h)]) / total;
          x[at(e * heads + h)] += 900.0 * static_cast<double>(r);  // beyond what exp can give
        }
      }
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>(0, 6), {6, segments.rows}}) {
      subtract_maximum(segments, heads, x.data(), y.data(), begin, end);
      for (std::int64_t i = matrix.offsets[at(begin)] * heads; i < matrix.offsets[at(end)] * heads; ++i)
        y[at(i)] = std::exp(y[at(i)]);
      divide_by_sum(segments, heads, y.data(), begin, end);
    }
    bool right = true;
    for (std::size_t i = 0; i < y.size(); ++i) right &= std::abs(y[i] - expected[i]) < 1e-11;
    CHECK(right);
  }
}

TEST_CASE("a matrix by columns has each entry once, in order", "[segments]") {
  for (const std::int64_t rows : {0, 1, 17, 200}) {
    const Matrix matrix(7, rows);
    const std::int64_t entries = std::ssize(matrix.column);
    Indices offsets(at(matrix.columns + 1), -1), row(at(entries), -1), entry(at(entries), -1);
    transpose(matrix.segments(), matrix.columns, offsets.data(), row.data(), entry.data());
    CHECK(offsets.front() == 0);
    CHECK(offsets.back() == entries);
    Indices expected_row, expected_entry;
    for (std::int64_t c = 0; c < matrix.columns; ++c) {
      CHECK(offsets[at(c)] == std::ssize(expected_entry));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t e = matrix.offsets[at(r)]; e < matrix.offsets[at(r + 1)]; ++e)
          if (matrix.column[at(e)] == c) {
            expected_row.push_back(r);
            expected_entry.push_back(e);
          }
    }
    CHECK(row == expected_row);
    CHECK(entry == expected_entry);
  }
}

}  // namespace segments_tests

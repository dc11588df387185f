// The fused reduction against straightforward ones in double, on this machine's instructions and on any's.
#include <cmath>
#include <limits>
#include <random>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/statistics.hpp>

namespace statistics_tests {

using namespace trainyard;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Element by element, deviations about the true mean.
Statistics reference(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  const double* x = values.const_data_ptr<double>();
  Statistics s;
  s.count = values.numel();
  long double sum = 0, l1 = 0, squares = 0;
  s.minimum = s.abs_minimum = s.count > 0 ? infinity : not_a_number;
  s.maximum = s.abs_maximum = s.count > 0 ? -infinity : not_a_number;
  for (std::int64_t i = 0; i < s.count; ++i) {
    const double a = std::abs(x[i]);
    s.zeros += x[i] == 0.0;
    s.nans += std::isnan(x[i]);
    s.infinities += std::isinf(x[i]);
    s.minimum = std::isnan(x[i])        ? not_a_number
                : std::isnan(s.minimum) ? not_a_number
                                        : std::min(s.minimum, x[i]);
    s.maximum = std::isnan(x[i])        ? not_a_number
                : std::isnan(s.maximum) ? not_a_number
                                        : std::max(s.maximum, x[i]);
    s.abs_minimum = std::isnan(a)               ? not_a_number
                    : std::isnan(s.abs_minimum) ? not_a_number
                                                : std::min(s.abs_minimum, a);
    s.abs_maximum = std::isnan(a)               ? not_a_number
                    : std::isnan(s.abs_maximum) ? not_a_number
                                                : std::max(s.abs_maximum, a);
    sum += x[i], l1 += a, squares += static_cast<long double>(x[i]) * x[i];
    s.product *= x[i];
  }
  s.sum = static_cast<double>(sum), s.l1 = static_cast<double>(l1), s.squares = static_cast<double>(squares);
  long double deviation = 0, abs_deviation = 0;
  for (std::int64_t i = 0; i < s.count; ++i) {
    const long double d = x[i] - sum / s.count, a = std::abs(x[i]) - l1 / s.count;
    deviation += d * d, abs_deviation += a * a;
  }
  s.deviation = static_cast<double>(deviation), s.abs_deviation = static_cast<double>(abs_deviation);
  return s;
}

bool close(double a, double b, double tolerance, double scale = 0.0) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= tolerance * std::max(std::abs(b), scale);
}

void check_same(const Statistics& s, const Statistics& r) {
  constexpr double tolerance = 1e-6;
  CHECK(s.count == r.count);
  CHECK(s.zeros == r.zeros);
  CHECK(s.nans == r.nans);
  CHECK(s.infinities == r.infinities);
  CHECK(close(s.minimum, r.minimum, 0));
  CHECK(close(s.maximum, r.maximum, 0));
  CHECK(close(s.abs_minimum, r.abs_minimum, 0));
  CHECK(close(s.abs_maximum, r.abs_maximum, 0));
  INFO("sum " << s.sum << " " << r.sum << " l1 " << s.l1 << " " << r.l1);
  // A sum of doubles that cancels is as exact as its greatest parts.
  CHECK(close(s.sum, r.sum, tolerance, 1e-8 * r.l1));
  CHECK(close(s.l1, r.l1, tolerance));
  INFO("squares " << s.squares << " " << r.squares << " product " << s.product << " " << r.product);
  CHECK(close(s.squares, r.squares, tolerance));
  CHECK(close(s.product, r.product, tolerance));
  INFO("deviation " << s.deviation << " " << r.deviation << ", " << s.abs_deviation << " "
                    << r.abs_deviation);
  CHECK(close(s.deviation, r.deviation, tolerance, 1e-15 * r.squares));
  CHECK(close(s.abs_deviation, r.abs_deviation, tolerance, 1e-15 * r.squares));
}

void check(const at::Tensor& tensor) {
  const Statistics expected = reference(tensor);
  check_same(statistics(tensor), expected);
  check_same(portable_statistics(tensor), expected);
}

}  // namespace

TEST_CASE("1,000 random tensors, of no to five dimensions, of all types and strides") {
  at::manual_seed(7);
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr at::ScalarType types[] = {at::kFloat,  at::kBFloat16, at::kFloat,    at::kHalf,
                                      at::kDouble, at::kLong,     at::kBFloat16, at::kBool};
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::int64_t> shape;
    for (int d = below(6); d > 0; --d) shape.push_back(below(i % 10 == 0 ? 13 : 8) + (below(20) > 0));
    if (i % 50 == 0) shape = {below(30000)};
    at::Tensor x = at::randn(shape);
    switch (below(6)) {
      case 0: x = at::relu(x); break;
      case 1: x = x * 1e-6 + 3.0; break;
      case 2: x = x * std::pow(10.0, below(12) - 6); break;
      case 3: x = at::rand(shape); break;
      default: break;
    }
    if (below(4) == 0 && x.dim() > 1) x = x.transpose(0, x.dim() - 1);
    const at::ScalarType type = types[below(8)];
    INFO("tensor " << i << " of " << c10::toString(type) << ", " << x.sizes());
    check(x.to(type));
  }
}

TEST_CASE("tensors that a careless reduction gets wrong") {
  at::manual_seed(3);
  const at::Tensor x = at::randn({10000});
  SECTION("nothing, one element, a whole block and one more") {
    check(at::empty({0}));
    check(at::empty({3, 0, 2}));
    for (const std::int64_t n : {1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 8192})
      check(at::randn({n}));
  }
  SECTION("a mean far from zero does not take the deviation with it") {
    check(x * 1e-3 + 1000.0);
    check(x + 1e6);
    check(at::full({5000}, 0.1));
    check(at::cat({at::full({4096}, 7.0), at::full({4096}, 7.5)}));
  }
  SECTION("numbers whose squares leave float32") {
    check(x * 1e-25);
    check(x * 1e25);
    check(x * 1e-42);
    check(at::cat({x, x * 1e30}));
    check(x.to(at::kDouble) * 1e200);
  }
  SECTION("products") {
    check(at::full({100}, 2.0));
    check(at::full({2001}, -2.0));  // -infinity
    check(at::full({2002}, -2.0));
    check(at::full({100000}, 1.0));
    check(at::full({3000}, 1.0001));
    check(at::cat({at::full({3000}, 2.0), at::zeros({3000})}));  // infinity * 0
    check(at::cat({at::full({3000}, 0.5), at::full({3000}, infinity)}));
  }
  SECTION("zeros") {
    check(at::zeros({10000}));
    check(-at::zeros({10}));
    check(at::relu(x));
  }
  SECTION("infinities of both signs, and not a number") {
    for (const double odd : {infinity, -infinity, not_a_number})
      for (const std::int64_t at : {0, 17, 5000, 9999}) {
        at::Tensor y = x.clone();
        y[at] = odd;
        check(y);
        y[(at + 1) % 10000] = -infinity;
        check(y);
        check(y.to(at::kBFloat16));
      }
    check(at::full({40}, not_a_number));
    check(at::full({5000}, infinity));
  }
  SECTION("integers and truths") {
    check(at::arange(-3000, 3000, at::kLong));
    check(at::arange(-100, 100, at::kChar));
    check(at::arange(0, 200, at::kByte));
    check(at::arange(-30000, 30000, 7, at::kShort));
    check(at::arange(-30000, 30000, 7, at::kInt));
    check(x > 0);
  }
}

TEST_CASE("one NaN among ten million is found, and Inf - Inf is one") {
  at::Tensor x = at::ones({10000000});
  x[9876543] = not_a_number;
  CHECK(statistics(x).nans == 1);
  CHECK(std::isnan(statistics(x).sum));
  CHECK(std::isnan(statistics(x).maximum));
  x[9876543] = infinity;
  x[1] = -infinity;
  const Statistics s = statistics(x);
  CHECK(s.nans == 0);
  CHECK(s.infinities == 2);
  CHECK(std::isnan(s.sum));
  CHECK(s.maximum == infinity);
  const at::Tensor difference = at::full({3}, infinity) - at::full({3}, infinity);
  CHECK(statistics(difference).nans == 3);
}

TEST_CASE("parts put together are the whole") {
  at::manual_seed(5);
  std::mt19937 random(5);
  const at::Tensor x = at::randn({20000});
  at::Tensor odd = x.clone();
  odd[12345] = not_a_number;
  odd[3] = -infinity;
  for (const at::Tensor& whole : {x, at::relu(x), x * 1e-3 + 1000.0, odd, at::full({9000}, 1.0001)}) {
    Statistics parts;
    for (std::int64_t first = 0; first < whole.numel();) {
      const std::int64_t count =
          std::min<std::int64_t>(whole.numel() - first, static_cast<std::int64_t>(random() % 6000));
      parts.append(statistics(whole.narrow(0, first, count)));
      first += count;
    }
    check_same(parts, reference(whole));
  }
}

TEST_CASE("reductions by name") {
  const Statistics s = statistics(at::tensor({1.0, 2.0, 3.0, 4.0}).reshape({2, 2}));
  CHECK(reduction(s, "variance") == Approx(5.0 / 3.0));  // as at::var, everywhere
  CHECK(reduction(s, "l1") == 10.0);                     // of the tensor as a vector
  CHECK(reduction(s, "l2") == Approx(5.4772256));
  CHECK(reduction(s, "prod") == 24.0);
  CHECK(reduction(statistics(at::tensor({-2.0, 1.0})), "abs_mean") == 1.5);
  CHECK(std::isnan(reduction(statistics(at::tensor({2.0})), "std")));
  CHECK_FALSE(is_reduction("median"));
  CHECK_THROWS_AS(reduction(s, "median"), PluginError);
  CHECK_THROWS_AS(statistics(at::zeros({2}, at::kComplexFloat)), PluginError);
}

}  // namespace statistics_tests

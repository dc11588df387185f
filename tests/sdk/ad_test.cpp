// Derivatives against closed forms, worked out by hand.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numeric>

#include <catch2/catch.hpp>

#include <trainyard/ad/gradient.hpp>

namespace ad_tests {
namespace {

thread_local std::size_t allocations = 0;

}  // namespace
}  // namespace ad_tests

// Counts what a thread of this program takes.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++ad_tests::allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace ad_tests {

using namespace trainyard;
using Numbers = std::vector<double>;

namespace {

double largest(const Numbers& x) {
  double result = 0.0;
  for (const double each : x) result = std::max(result, std::abs(each));
  return result;
}
/// Largest difference, relative to the largest number expected.
double distance(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  double result = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) result = std::max(result, std::abs(found[i] - expected[i]));
  return result / std::max(1.0, largest(expected));
}

/// Forward over forward.
template <class F>
double second(const F& f, const Numbers& x, std::size_t row, std::size_t column) {
  using Inner = ad::Dual<1>;
  using Outer = ad::Dual<1, Inner>;
  std::vector<Outer> moving;
  for (std::size_t i = 0; i < x.size(); ++i)
    moving.emplace_back(Inner(x[i], std::array<double, 1>{i == column ? 1.0 : 0.0}),
                        std::array<Inner, 1>{Inner(i == row ? 1.0 : 0.0)});
  return f(std::span<const Outer>(moving)).slope(0).slope(0);
}

/// All modes against the closed form; where there is none of second order, against central differences of the gradient.
template <class F>
void check(const char* name, const F& f, const Numbers& x, const Numbers& slopes,
           const Numbers& curvature = {}) {
  INFO(name);
  constexpr double bar = 1e-12;
  const std::size_t n = x.size();
  const auto reverse = ad::gradient(f, x);
  const double y = f(std::span<const double>(x));
  CHECK(distance({reverse.value}, {y}) <= bar);
  CHECK(distance(reverse.slopes, slopes) <= bar);

  std::vector<ad::Dual<8>> moving;
  REQUIRE(n <= 8);
  for (std::size_t i = 0; i < n; ++i) moving.emplace_back(x[i], static_cast<int>(i));
  const auto forward = f(std::span<const ad::Dual<8>>(moving));
  CHECK(distance(Numbers(forward.slopes().begin(), forward.slopes().begin() + static_cast<std::ptrdiff_t>(n)),
                 slopes) <= bar);

  const auto hessian = ad::hessian(f, x);
  CHECK(distance(hessian.slopes, slopes) <= bar);
  Numbers of_duals;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) of_duals.push_back(second(f, x, i, j));
  CHECK(distance(hessian.curvature, of_duals) <= bar);
  if (!curvature.empty()) CHECK(distance(hessian.curvature, curvature) <= bar);

  Numbers differences, differences_of_slopes(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    constexpr double h = 1e-5;
    Numbers up = x, down = x;
    up[i] += h, down[i] -= h;
    differences.push_back((f(std::span<const double>(up)) - f(std::span<const double>(down))) / (2 * h));
    const auto above = ad::gradient(f, up).slopes, below = ad::gradient(f, down).slopes;
    for (std::size_t j = 0; j < n; ++j) differences_of_slopes[j * n + i] = (above[j] - below[j]) / (2 * h);
  }
  CHECK(distance(reverse.slopes, differences) <= 1e-7);
  CHECK(distance(hessian.curvature, differences_of_slopes) <= 1e-7);
}

// A function of inputs x of type T.
#define F(...)                                                                                             \
  [&]<class T>(std::span<const T> x) -> T {                                                                \
    using std::abs, std::acos, std::asin, std::atan, std::atan2, std::cbrt, std::cos, std::cosh, std::erf, \
        std::exp, std::expm1, std::log, std::log1p, std::pow, std::sin, std::sinh, std::tan, std::sqrt,    \
        std::tanh, std::max, std::min, std::hypot;                                                         \
    __VA_ARGS__                                                                                            \
  }

template <class T>
T determinant(std::vector<T> a, std::size_t n) {
  T result = 1.0;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k; i < n; ++i)
      if (ad::value(a[i * n + k]) * ad::value(a[i * n + k]) >
          ad::value(a[pivot * n + k]) * ad::value(a[pivot * n + k]))
        pivot = i;
    for (std::size_t j = 0; j < n && pivot != k; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
    if (pivot != k) result = -result;
    result *= a[k * n + k];
    for (std::size_t i = k + 1; i < n; ++i) {
      const T factor = a[i * n + k] / a[k * n + k];
      for (std::size_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return result;
}

template <class T>
T fibonacci(int n, const T& a, const T& b) {
  return n == 0 ? a : fibonacci(n - 1, b, T(a + b));
}

}  // namespace

TEST_CASE("derivatives of straight code are those of closed forms") {
  check("Rosenbrock", F(const T a = 1 - x[0], b = x[1] - x[0] * x[0]; return a * a + 100 * b * b;),
        {-1.2, 1.0}, {-215.6, -88.0}, {1330, 480, 480, 200});
  const double e = std::exp(0.7), s = std::sin(1.3), c = std::cos(1.3);
  check("exp(x) sin(y)", F(return exp(x[0]) * sin(x[1]);), {0.7, 1.3}, {e * s, e * c},
        {e * s, e * c, e * c, -e * s});
  check("log(x) / y", F(return log(x[0]) / x[1];), {2.0, 4.0}, {1.0 / 8, -std::log(2.0) / 16},
        {-1.0 / 16, -1.0 / 32, -1.0 / 32, 2 * std::log(2.0) / 64});
  check("x^y", F(return pow(x[0], x[1]);), {2.0, 3.0}, {12.0, 8 * std::log(2.0)},
        {12.0, 4 + 12 * std::log(2.0), 4 + 12 * std::log(2.0), 8 * std::log(2.0) * std::log(2.0)});
  check("x^3.5", F(return pow(x[0], 3.5);), {1.7}, {3.5 * std::pow(1.7, 2.5)}, {8.75 * std::pow(1.7, 1.5)});
  check("3^x", F(return pow(3.0, x[0]);), {1.2}, {std::pow(3.0, 1.2) * std::log(3.0)},
        {std::pow(3.0, 1.2) * std::log(3.0) * std::log(3.0)});
  const double t = std::tanh(0.4), d = 1 - t * t;
  check("tanh", F(return tanh(x[0]);), {0.4}, {d}, {-2 * t * d});
  const double g = 2 * std::numbers::inv_sqrtpi * std::exp(-0.36);
  check("erf", F(return erf(x[0]);), {0.6}, {g}, {-1.2 * g});
  check("atan2", F(return atan2(x[0], x[1]);), {3.0, 4.0}, {4.0 / 25, -3.0 / 25},
        {-24.0 / 625, -7.0 / 625, -7.0 / 625, 24.0 / 625});
  check("hypot", F(return hypot(x[0], x[1]);), {3.0, 4.0}, {0.6, 0.8},
        {16.0 / 125, -12.0 / 125, -12.0 / 125, 9.0 / 125});
  check("logistic", F(return 1 / (1 + exp(-x[0]));), {0.3},
        {std::exp(-0.3) / std::pow(1 + std::exp(-0.3), 2)});
  check("sqrt of a sum of squares", F(return sqrt(x[0] * x[0] + x[1] * x[1]);), {3.0, 4.0}, {0.6, 0.8});
  // Each of these undoes another: the identity, of slope 1.
  check("inverses",
        F(return asin(sin(x[0])) + atan(tan(x[0])) + acos(cos(x[0])) + log1p(expm1(x[0])) +
                     cbrt(x[0] * x[0] * x[0]) + log(sinh(x[0]) + cosh(x[0]));),
        {0.5}, {6.0}, {0.0});
}

TEST_CASE("derivatives through branches are those of the branch taken") {
  const auto huber =
      F(const T d = x[0] - 1.0; if (abs(d) < 0.5) return 0.5 * d * d; return 0.5 * (abs(d) - 0.25););
  check("Huber, near", huber, {1.2}, {0.2}, {1.0});
  check("Huber, far", huber, {-3.0}, {-0.5}, {0.0});
  check("max and min", F(return max(x[0], x[1]) * min(x[0], x[1]) + max(x[0], 2.0) + min(x[1], 7.0);),
        {3.0, 5.0}, {6.0, 4.0}, {0, 1, 1, 0});
  check("median of three",
        F(std::vector<T> a(x.begin(), x.end());
          std::ranges::sort(a, [](const T& l, const T& r) { return l < r; }); return a[1] * a[1];),
        {5.0, 1.0, 3.0}, {0, 0, 6}, {0, 0, 0, 0, 0, 0, 0, 0, 2});
  const auto piecewise = F(switch (static_cast<int>(ad::value(x[0]))) {
    case 0: return x[0] * x[0];
    case 1: return exp(x[0]);
    default: return 3 * x[0];
  });
  check("switch, 0", piecewise, {0.5}, {1.0}, {2.0});
  check("switch, 1", piecewise, {1.5}, {std::exp(1.5)}, {std::exp(1.5)});
  check("switch, else", piecewise, {9.0}, {3.0}, {0.0});
  // What log(sum(exp)) is of, without an overflow.
  check("log-sum-exp",
        F(T top = x[0]; for (const T& each
                             : x) top = max(top, each);
          T sum = 0; for (const T& each
                          : x) sum += exp(each - top);
          return top + log(sum);),
        {1000.0, 1000.0}, {0.5, 0.5}, {0.25, -0.25, -0.25, 0.25});
}

TEST_CASE("derivatives through loops") {
  check("Horner",
        F(T y = 0; for (const double a
                        : {2.0, -3.0, 0.5, 7.0}) y = y * x[0] + a;
          return y;),
        {1.5}, {6 * 2.25 - 6 * 1.5 + 0.5}, {12 * 1.5 - 6});
  const double q = std::pow(0.999, 1000);
  check("1,000 steps", F(T y = x[0]; for (int i = 0; i < 1000; ++i) y = 0.999 * y + x[1]; return y;),
        {2.0, 0.5}, {q, (1 - q) / 0.001}, {0, 0, 0, 0});
  // As many steps as it takes; the derivative of the root that it comes to.
  check("Newton's square root",
        F(T y = x[0]; while (abs(y * y - x[0]) > 1e-15 * x[0]) y = 0.5 * (y + x[0] / y);
          for (int more = 0; more < 3; ++more) y = 0.5 * (y + x[0] / y); return y;),
        {3.0}, {0.5 / std::sqrt(3.0)}, {-0.25 / std::pow(3.0, 1.5)});
  check("loop with exits", F(T y = 0; for (int i = 1;; ++i) {
          if (i % 2 == 0) continue;
          if (i > 6) break;
          y += pow(x[0], i);
        } return y;),
        {0.9}, {1 + 3 * 0.81 + 5 * std::pow(0.9, 4)}, {6 * 0.9 + 20 * std::pow(0.9, 3)});
  check("recursion", F(return fibonacci(10, x[0], x[1]);), {1.0, 1.0}, {34, 55}, {0, 0, 0, 0});
  check("continued fraction", F(T y = x[0]; for (int i = 0; i < 200; ++i) y = x[0] + 1 / y; return y;), {1.0},
        {0.5 + 0.5 / std::sqrt(5.0)}, {2 / std::pow(5.0, 1.5)});
  // The midpoint rule is exact for a straight line: x (b + b^2 / 2).
  check("quadrature",
        F(const T h = x[1] / 64; T sum = 0;
          for (int i = 0; i < 64; ++i) sum += h * x[0] * (1 + h * (i + 0.5)); return sum;),
        {2.0, 3.0}, {7.5, 8.0}, {0, 4, 4, 2});
}

TEST_CASE("derivatives through arrays and what is written in them") {
  check("product by prefixes",
        F(std::vector<T> a(x.begin(), x.end()); for (std::size_t i = 1; i < a.size(); ++i) a[i] *= a[i - 1];
          return a.back();),
        {2.0, 3.0, 5.0}, {15, 10, 6}, {0, 5, 3, 5, 0, 2, 3, 2, 0});
  check("scan in place",
        F(std::vector<T> a(x.begin(), x.end()); for (std::size_t i = 1; i < a.size(); ++i) a[i] += a[i - 1];
          T sum = 0; for (const T& each
                          : a) sum += each * each;
          return sum;),
        {1.0, 2.0, 3.0}, {20, 18, 12}, {6, 4, 2, 4, 4, 2, 2, 2, 2});
  check("written over",
        F(std::vector<T> a(x.begin(), x.end()); a[0] = a[1]; a[1] = 4.0; return a[0] * a[0] + a[1] * x[0];),
        {7.0, 3.0}, {4, 6}, {0, 0, 0, 2});
  check("swapped",
        F(std::vector<T> a(x.begin(), x.end()); std::swap(a[0], a[1]); return a[0] - 2 * a[1] * a[1];),
        {3.0, 5.0}, {-12, 1}, {-4, 0, 0, 0});
  // d det / dA = det A^-T; of this one by hand.
  check("determinant with pivots", F(return determinant(std::vector<T>(x.begin(), x.end()), 2);),
        {1.0, 2.0, 3.0, 4.0}, {4, -3, -2, 1}, {0, 0, 0, 1, 0, 0, -1, 0, 0, -1, 0, 0, 1, 0, 0, 0});
  check("bubble sort",
        F(std::vector<T> a(x.begin(), x.end());
          for (std::size_t i = 0; i < a.size(); ++i) for (std::size_t j = 0; j + 1 < a.size();
                                                          ++j) if (a[j] > a[j + 1]) std::swap(a[j], a[j + 1]);
          T sum = 0; for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(i) * a[i] * a[i];
          return sum;),
        {4.0, 1.0, 3.0}, {16, 0, 6}, {4, 0, 0, 0, 0, 0, 0, 0, 2});
  check("convolution",
        F(std::array<T, 4> y{};
          for (std::size_t i = 0; i < 2; ++i) for (std::size_t j = 0; j < 3; ++j) y[i + j] += x[i] * x[2 + j];
          return y[0] + 2 * y[1] + 3 * y[2] + 4 * y[3];),
        {1.0, 2.0, 3.0, 4.0, 5.0}, {3 + 8 + 15, 6 + 12 + 20, 1 + 4, 2 + 6, 3 + 8});
  check("table looked up",
        F(const std::size_t i = static_cast<std::size_t>(ad::value(x[0]));
          const T part = x[0] - static_cast<double>(i); return x[1 + i] * (1 - part) + x[2 + i] * part;),
        {1.25, 10.0, 20.0, 40.0}, {20, 0, 0.75, 0.25}, {0, 0, -1, 1, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0, 0, 0});
  check("dot of arrays",
        F(return ad::dot(x, std::span<const T>(x)) +
                     ad::dot(x, std::span<const double>(std::array{1.0, 2.0}));),
        {3.0, 5.0}, {7, 12}, {2, 0, 0, 2});
}

TEST_CASE("derivatives within functions are differentiated") {
  // The energy of a spring, k d^2 / 2, has the force -k d: the loss is of the force.
  check("force of an energy",
        F(const auto energy = [&]<class U>(const U& place) -> U { return 0.5 * x[0] * place * place; };
          const T force = -ad::derivative(energy, x[1]).slope(0); return force * force;),
        {2.0, 3.0}, {36, 24}, {18, 24, 24, 8});
  // Reverse in whatever comes: d/dx of |grad g|^2 with g = x^3 y.
  check("gradient within",
        F(const auto g = []<class U>(std::span<const U> z) -> U { return z[0] * z[0] * z[0] * z[1]; };
          const auto slopes = ad::gradient(g, std::vector<T>(x.begin(), x.end())).slopes;
          return slopes[0] * slopes[0] + slopes[1] * slopes[1];),
        {1.0, 2.0}, {9 * 4 * 4 + 6, 36}, {108 * 4 + 30, 36 * 4, 36 * 4, 18});
  // Where inner and outer slopes are taken for each other this is 2: (Siskind and Pearlmutter, 2008).
  const auto confusing = []<class T>(const T& x) -> T {
    return x * ad::derivative([&]<class U>(const U& y) -> U { return x + y; }, T(1.0)).slope(0);
  };
  CHECK(ad::derivative(confusing, 1.0).slope(0) == 1.0);
}

namespace {
/// Rounding whose derivative is that of the identity (straight-through).
struct Rounded {
  template <class T>
  T operator()(const T& x) const {
    return std::round(ad::value(x));
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T&) const {
    return {T(1.0)};
  }
};
/// As operations go it has the slope 2 x; what it says is 10 x, so that one can tell.
struct Square {
  template <class T>
  T operator()(const T& x) const {
    return x * x;
  }
  template <class T>
  std::array<T, 1> partials(const T&, const T& x) const {
    return {10.0 * x};
  }
};
struct Undeclared {
  template <class T>
  T operator()(const T& x) const {
    return x * x;
  }
};
}  // namespace

TEST_CASE("a derivative that a function gives itself stands in place of that of its operations") {
  check("synthesised", F(return ad::call(Undeclared{}, x[0]);), {3.0}, {6.0}, {2.0});
  CHECK(ad::call(Square{}, 3.0) == 9.0);
  const auto square = []<class T>(std::span<const T> x) -> T { return ad::call(Square{}, x[0]); };
  const auto found = ad::hessian(square, Numbers{3.0});
  CHECK((found.value == 9.0 && found.slopes == Numbers{30.0} && found.curvature == Numbers{10.0}));
  CHECK(ad::gradient(square, std::array{3.0}).slope(0) == 30.0);
  const auto rounded = []<class T>(std::span<const T> x) -> T { return ad::call(Rounded{}, x[0]) * x[0]; };
  CHECK(ad::gradient(rounded, Numbers{2.6}).slopes == Numbers{3.0 + 2.6});
}

TEST_CASE("numbers of single precision have derivatives of it") {
  const auto f =
      F(return sin(x[0]) * exp(x[1]) + pow(x[0], 3) * log(x[1]) + erf(x[0]) + 2.0 * atan2(x[0], x[1]););
  const auto single = ad::gradient(f, std::vector<float>{0.5f, 1.5f});
  const auto exact = ad::gradient(f, Numbers{0.5, 1.5});
  for (std::size_t i = 0; i < 2; ++i) CHECK(single.slopes[i] == Approx(exact.slopes[i]).epsilon(1e-6));
}

TEST_CASE("a constant has no slope, and leaves nothing on the tape") {
  ad::Tape<> tape;
  const ad::Var<> x = tape.variable(2.0), constant = 3.0;
  const ad::Var<> y = exp(constant) * 2.0 + constant;
  CHECK(tape.size() == 1);
  tape.backward(y);
  CHECK((tape.slope(x) == 0.0 && tape.slope(constant) == 0.0));
  tape.backward(x + 1.0);
  CHECK(tape.slope(x) == 1.0);
  CHECK(ad::gradient([]<class T>(std::span<const T>) -> T { return 4.0; }, Numbers{1.0, 2.0}).slopes ==
        Numbers{0.0, 0.0});
}

TEST_CASE("the gradient of a loop that reads an array is linear in its length") {
  std::vector<std::size_t> taken;
  for (const std::size_t n : {1'000, 10'000, 100'000, 1'000'000}) {
    Numbers x(n);
    std::iota(x.begin(), x.end(), 0.0);
    const auto sum = []<class T>(std::span<const T> a) -> T {
      T result = 0;
      for (std::size_t i = 0; i < a.size(); ++i) result += a[i] * a[i];
      return result;
    };
    ad::Tape<> tape;
    allocations = 0;
    const auto found = ad::gradient(sum, x, tape);
    taken.push_back(allocations);
    CHECK(tape.size() == 3 * n);  // inputs, products, sums
    CHECK(found.slopes[n - 1] == 2.0 * static_cast<double>(n - 1));
    allocations = 0;
    CHECK(ad::gradient(sum, x, tape).slopes == found.slopes);
    CHECK(allocations <= 4);  // its inputs, and what it gives
  }
  CHECK(taken.back() <=
        taken.front() + 40);  // the tape doubles: 10 times of 3 arrays for 1,000 times the length
}

}  // namespace ad_tests

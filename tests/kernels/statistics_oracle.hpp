// The numbers of a tensor one by one in long double, and what may be between them and others.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/statistics.hpp"

namespace trainyard::test {

using kernels::cuda::Numbers;
using Doubles = std::vector<double>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Deviations about the true mean; the product in order.
inline Numbers expected_numbers(const Doubles& values) {
  Numbers s;
  s.count = std::ssize(values);
  long double sum = 0, l1 = 0, squares = 0;
  for (const double x : values) {
    const double a = std::abs(x);
    s.zeros += x == 0.0;
    s.nans += std::isnan(x);
    s.infinities += std::isinf(x);
    sum += x, l1 += a, squares += static_cast<long double>(x) * x;
    s.product *= x;
    s.minimum = std::fmin(s.minimum, x), s.maximum = std::fmax(s.maximum, x);
    s.abs_minimum = std::fmin(s.abs_minimum, a), s.abs_maximum = std::fmax(s.abs_maximum, a);
  }
  if (s.nans > 0) s.minimum = s.maximum = s.abs_minimum = s.abs_maximum = not_a_number;
  s.sum = static_cast<double>(sum), s.l1 = static_cast<double>(l1), s.squares = static_cast<double>(squares);
  const auto n = static_cast<long double>(s.count);
  long double deviation = 0, abs_deviation = 0;
  for (const double x : values) {
    const long double d = x - sum / n, a = std::abs(x) - l1 / n;
    deviation += d * d, abs_deviation += a * a;
  }
  s.deviation = static_cast<double>(deviation), s.abs_deviation = static_cast<double>(abs_deviation);
  return s;
}

inline bool close(double a, double b, double scale = 0.0) {
  constexpr double tolerance = 1e-6;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= tolerance * std::max(std::abs(b), scale);
}

inline bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}
inline bool same(const Numbers& a, const Numbers& b) {
  return a.count == b.count && a.zeros == b.zeros && a.nans == b.nans && a.infinities == b.infinities &&
         same(a.minimum, b.minimum) && same(a.maximum, b.maximum) && same(a.abs_minimum, b.abs_minimum) &&
         same(a.abs_maximum, b.abs_maximum) && same(a.sum, b.sum) && same(a.l1, b.l1) &&
         same(a.squares, b.squares) && same(a.product, b.product) && same(a.deviation, b.deviation) &&
         same(a.abs_deviation, b.abs_deviation);
}

/// `s` may be the Statistics of the SDK as well.
template <class Found>
void check_same(const Found& s, const Numbers& r) {
  CHECK(s.count == r.count);
  CHECK(s.zeros == r.zeros);
  CHECK(s.nans == r.nans);
  CHECK(s.infinities == r.infinities);
  INFO("extremes " << s.minimum << " " << s.maximum << " " << s.abs_minimum << " " << s.abs_maximum);
  CHECK(same(s.minimum, r.minimum));
  CHECK(same(s.maximum, r.maximum));
  CHECK(same(s.abs_minimum, r.abs_minimum));
  CHECK(same(s.abs_maximum, r.abs_maximum));
  INFO("sum " << s.sum << " " << r.sum << ", l1 " << s.l1 << " " << r.l1);
  // A sum of doubles that cancels is as exact as its greatest parts.
  CHECK(close(s.sum, r.sum, 1e-8 * r.l1));
  CHECK(close(s.l1, r.l1));
  INFO("squares " << s.squares << " " << r.squares << ", product " << s.product << " " << r.product);
  CHECK(close(s.squares, r.squares));
  // Where its parts leave the range of double on either side it depends on their order what is left.
  if (std::isnormal(r.product) || r.abs_minimum >= 1 || r.abs_maximum <= 1)
    CHECK(close(s.product, r.product));
  else
    CHECK_FALSE(std::isnormal(s.product));
  INFO("deviation " << s.deviation << " " << r.deviation << ", " << s.abs_deviation << " "
                    << r.abs_deviation);
  CHECK(close(s.deviation, r.deviation, 1e-15 * r.squares));
  CHECK(close(s.abs_deviation, r.abs_deviation, 1e-15 * r.squares));
}

struct Sample {
  const char* name;
  Doubles values;
};

/// Tensors that a careless reduction gets wrong. All numbers are such of float32 but in those `of_doubles`.
inline std::vector<Sample> samples(bool of_doubles) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const auto made = [](std::size_t count, auto&& next) {
    Doubles values(count);
    for (double& each : values) each = next();
    return values;
  };
  const auto randn = [&](std::size_t count, double scale = 1.0, double shift = 0.0) {
    return made(count, [&] { return normal(random) * scale + shift; });
  };
  const auto joined = [](Doubles a, const Doubles& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::vector<Sample> all;
  for (const std::size_t n :
       {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 1023, 1024, 1025, 4099, 32767, 32768, 32769, 65536, 65541, 100000})
    all.push_back({"of a length", randn(n)});
  all.push_back({"shifted by a little", randn(40000, 1e-3, 1000.0)});
  all.push_back({"shifted by much", randn(40000, 1.0, 1e6)});
  all.push_back({"one number", Doubles(50000, static_cast<double>(0.1F))});
  all.push_back({"one number but for the first", joined({1e10}, randn(33000))});
  all.push_back({"the greatest first and last", joined(joined({3e5}, randn(32766)), {-3e5})});
  all.push_back({"two numbers", joined(Doubles(40000, 7.0), Doubles(40000, 7.5))});
  Doubles signs(40000, 0.125);
  for (std::size_t i = 0; i < signs.size(); i += 3) signs[i] = -0.125;
  all.push_back({"two signs of one number", signs});
  for (const double scale : {1e-25, 1e25, 1e-42, 1e30}) all.push_back({"scaled", randn(5000, scale)});
  all.push_back({"large behind small", joined(Doubles(40000, 1e-3), Doubles(40000, 1e10))});
  all.push_back({"twos", Doubles(900, 2.0)});
  all.push_back({"minus twos, too many", Doubles(40001, -2.0)});
  all.push_back({"minus twos, too many, an even number", Doubles(40002, -2.0)});
  all.push_back({"ones", Doubles(100000, 1.0)});
  all.push_back({"a little above one", Doubles(3000, 1.00390625)});
  all.push_back({"minus ones", Doubles(33001, -1.0)});
  all.push_back({"zeros", Doubles(70000, 0.0)});
  all.push_back({"zeros with a sign", Doubles(11, -0.0)});
  Doubles relu = randn(40000);
  for (double& each : relu) each = std::max(each, 0.0);
  all.push_back({"half of them zeros", relu});
  for (const double odd : {infinity, -infinity, not_a_number})
    for (const std::size_t at : {0, 17, 32768, 39998, 39999}) {
      Doubles values = randn(40000);
      values[at] = odd;
      all.push_back({"one that is not finite", values});
      values[(at + 1) % 40000] = -infinity;
      all.push_back({"two that are not finite", values});
    }
  all.push_back({"no number at all", Doubles(40, not_a_number)});
  all.push_back({"infinities only", Doubles(40000, infinity)});
  if (of_doubles) {
    all.push_back({"squares beyond double", randn(40000, 1e200)});
    all.push_back({"squares below double", randn(40000, 1e-200)});
    all.push_back({"doubles of one number", Doubles(50000, 0.1)});
    all.push_back({"doubles, shifted by very much", randn(40000, 1.0, 1e9)});
  }
  return all;
}

}  // namespace trainyard::test

// The operations of chains as formulas in double precision, and numbers to try them with.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cpu/chains.hpp"

namespace trainyard::kernels::oracle {

using Floats = std::vector<float>;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline const float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Of both signs and many sizes, and what is special.
inline Floats numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0.0f, 1.0f);
  Floats found = {0.0f,   -0.0f,  1.0f,   -1.0f,    0.625f,    -0.625f,     3.0f,  -3.0f,
                  20.0f,  -20.0f, 88.7f,  89.0f,    -86.0f,    -104.0f,     1e-8f, -1e-8f,
                  1e-40f, 1e30f,  -1e30f, infinity, -infinity, not_a_number};
  while (found.size() < count) found.push_back(draw(random) * std::exp(2.0f * draw(random)));
  found.resize(count);
  return found;
}

using Function = std::function<double(double)>;
using Op = ChainOp;

inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
inline double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
/// std::clamp has no NaN.
inline double within(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

/// A function of one number, and the step through it. Its derivative is not written down here.
struct Case {
  const char* name;
  ChainStep step;
  Function exact;
  std::optional<Op> through;
  bool through_output = false;     ///< that step looks at what the function gave
  std::vector<double> kinks = {};  ///< where it has no derivative
  bool ulp_of_one = false;
};

inline std::vector<Case> cases() {
  return {
      {"negate", {Op::negate}, [](double x) { return -x; }, {}},
      {"absolute", {Op::absolute}, [](double x) { return std::abs(x); }, Op::through_absolute, false, {0.0}},
      {"reciprocal", {Op::reciprocal}, [](double x) { return 1.0 / x; }, Op::through_reciprocal, true, {0.0}},
      {"square root",
       {Op::square_root},
       [](double x) { return std::sqrt(x); },
       Op::through_square_root,
       true},
      {"exponential", {Op::exponential}, [](double x) { return std::exp(x); }, Op::multiply, true},
      {"logarithm", {Op::logarithm}, [](double x) { return std::log(x); }, Op::through_logarithm},
      {"relu", {Op::relu}, [](double x) { return x < 0.0 ? 0.0 : x; }, Op::through_relu, true, {0.0}},
      {"leaky relu",
       {Op::leaky_relu, -1, 0.25f},
       [](double x) { return x < 0.0 ? 0.25 * x : x; },
       Op::through_leaky_relu,
       false,
       {0.0}},
      {"elu",
       {Op::elu, -1, 0.75f},
       [](double x) { return x < 0.0 ? 0.75 * std::expm1(x) : x; },
       Op::through_elu,
       false,
       {0.0}},
      {"sigmoid", {Op::sigmoid}, sigmoid, Op::through_sigmoid, true},
      {"tanh", {Op::tanh}, [](double x) { return std::tanh(x); }, Op::through_tanh, true},
      {"gelu", {Op::gelu}, gelu, Op::through_gelu, false, {}, true},
      {"softplus", {Op::softplus}, softplus, Op::through_softplus, false, {}, true},
      {"hard sigmoid",
       {Op::hard_sigmoid, -1, 0.25f, 0.5f},
       [](double x) { return within(0.25 * x + 0.5, 0.0, 1.0); },
       Op::through_hard_sigmoid,
       false,
       {-2.0, 2.0},
       true},
      {"clip",
       {Op::clip, -1, -0.5f, 2.0f},
       [](double x) { return within(x, -0.5, 2.0); },
       Op::through_clip,
       false,
       {-0.5, 2.0}},
  };
}

/// In units of the last place of the exact value, or of 1; below 2^-125 all are as good as 0.
inline double apart(float found, double exact, bool ulp_of_one = false) {
  const auto rounded = static_cast<float>(exact);
  const double tiny = std::ldexp(1.0, -125);
  if (found == rounded || (found != found && exact != exact)) return 0.0;
  if (std::abs(exact) < tiny && std::abs(static_cast<double>(found)) < tiny) return 0.0;
  const double size = std::max(std::abs(exact), ulp_of_one ? 1.0 : tiny);
  return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, std::ilogb(size) - 23);
}

/// The derivative at a number, by differences; nothing where there is none, or none so near.
inline std::optional<double> slope(const Case& of, double at) {
  const double h = 1e-4 * std::min(1.0, std::abs(at));
  if (of.exact(at) != of.exact(at)) return std::nullopt;
  for (const double kink : of.kinks)
    if (std::abs(at - kink) <= 3.0 * h) return std::nullopt;
  return (8.0 * (of.exact(at + h) - of.exact(at - h)) - (of.exact(at + 2.0 * h) - of.exact(at - 2.0 * h))) /
         (12.0 * h);
}

/// What two numbers give, either of which may be NaN.
inline std::vector<std::pair<Op, std::function<double(double, double)>>> pairs() {
  const auto nan_of = [](double a, double b, double c) { return a != a || b != b ? std::nan("") : c; };
  return {
      {Op::load, [](double, double b) { return b; }},
      {Op::add, [](double a, double b) { return a + b; }},
      {Op::subtract, [](double a, double b) { return a - b; }},
      {Op::subtract_from, [](double a, double b) { return b - a; }},
      {Op::multiply, [](double a, double b) { return a * b; }},
      {Op::divide, [](double a, double b) { return a / b; }},
      {Op::divide_into, [](double a, double b) { return b / a; }},
      {Op::maximum, [=](double a, double b) { return nan_of(a, b, a > b ? a : b); }},
      {Op::minimum, [=](double a, double b) { return nan_of(a, b, a < b ? a : b); }},
      {Op::is_larger, [](double a, double b) { return a > b    ? 1.0
                                                      : a == b ? 0.5
                                                               : 0.0; }},
      {Op::is_smaller, [](double a, double b) { return a < b    ? 1.0
                                                       : a == b ? 0.5
                                                                : 0.0; }},
  };
}

}  // namespace trainyard::kernels::oracle

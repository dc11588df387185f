// Steps of chains against their formulas in double precision, at sizes with and without a rest, in each instruction
// set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "kernels/cpu/chains.hpp"
#include "tests/kernels/isas.hpp"

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Of both signs and many sizes, and what is special.
Floats numbers(std::size_t count, std::uint32_t seed) {
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

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
/// std::clamp has no NaN.
double within(double x, double low, double high) {
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

std::vector<Case> cases() {
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

Floats run(ChainKernel kernel, const std::vector<ChainStep>& steps, std::vector<Floats> inputs) {
  Floats output(inputs.front().size());
  std::vector<float*> operands;
  for (Floats& each : inputs) operands.push_back(each.data());
  operands.push_back(output.data());
  std::vector<ChainStep> all = {{Op::load, 0}};
  all.insert(all.end(), steps.begin(), steps.end());
  all.push_back({Op::keep, static_cast<std::int32_t>(inputs.size())});
  kernel({all.data(), std::ssize(all), operands.data(), std::ssize(operands)}, 0, std::ssize(output));
  return output;
}

/// In units of the last place of the exact value, or of 1; below 2^-125 all are as good as 0.
double apart(float found, double exact, bool ulp_of_one = false) {
  const auto rounded = static_cast<float>(exact);
  const double tiny = std::ldexp(1.0, -125);
  if (found == rounded || (found != found && exact != exact)) return 0.0;
  if (std::abs(exact) < tiny && std::abs(static_cast<double>(found)) < tiny) return 0.0;
  const double size = std::max(std::abs(exact), ulp_of_one ? 1.0 : tiny);
  return std::abs(static_cast<double>(found) - exact) / std::ldexp(1.0, std::ilogb(size) - 23);
}

TEST_CASE("chains: functions are within 4 ulp, at every size and in every instruction set", "[chains]") {
  for (const Isa isa : isas())
    for (const std::size_t size : {1U, 31U, 32U, 33U, 128U, 1000U, 20000U}) {
      const Floats x = numbers(size, 7);
      for (const Case& each : cases()) {
        const Floats found = run(chain_kernel(isa), {each.step}, {x});
        for (std::size_t i = 0; i < size; ++i) {
          INFO(each.name << " of " << x[i] << " is " << found[i]);
          const double exact = each.exact(static_cast<double>(x[i]));
          REQUIRE((apart(found[i], exact, each.ulp_of_one) <= 4.0 ||
                   (each.step.op == Op::gelu && std::isinf(x[i]))));
        }
      }
    }
}

TEST_CASE("chains: gradients are the slopes of the functions", "[chains]") {
  const std::size_t size = 3001;
  std::mt19937 random(3);
  std::normal_distribution<float> draw;
  Floats x(size), given(size);
  for (float& each : x) each = 2.0f * draw(random);
  for (float& each : given) each = draw(random);
  for (const Isa isa : isas())
    for (const Case& each : cases()) {
      if (!each.through) continue;
      const Floats y = run(chain_kernel(isa), {each.step}, {x});
      const ChainStep through{*each.through, 1, each.step.first, each.step.second};
      const Floats found = run(chain_kernel(isa), {through}, {given, each.through_output ? y : x});
      for (std::size_t i = 0; i < size; ++i) {
        const double at = static_cast<double>(x[i]), h = 1e-4 * std::min(1.0, std::abs(at));
        bool smooth = each.exact(at) == each.exact(at);
        for (const double kink : each.kinks) smooth = smooth && std::abs(at - kink) > 3.0 * h;
        if (!smooth) continue;
        const double slope = (8.0 * (each.exact(at + h) - each.exact(at - h)) -
                              (each.exact(at + 2.0 * h) - each.exact(at - 2.0 * h))) /
                             (12.0 * h);
        INFO(each.name << " at " << x[i]);
        REQUIRE(static_cast<double>(found[i]) ==
                Approx(static_cast<double>(given[i]) * slope).epsilon(2e-5).margin(2e-6));
      }
    }
}

TEST_CASE("chains: what goes through a ReLU that gave NaN is not stopped, as LibTorch has it", "[chains]") {
  for (const Isa isa : isas())
    REQUIRE(run(chain_kernel(isa), {{Op::through_relu, 1}},
                {{2.0f, 3.0f, 4.0f}, {not_a_number, 1.0f, 0.0f}}) == Floats{2.0f, 3.0f, 0.0f});
}

TEST_CASE("chains: two numbers, either way round", "[chains]") {
  const auto nan_of = [](double a, double b, double c) { return a != a || b != b ? std::nan("") : c; };
  const std::vector<std::pair<Op, std::function<double(double, double)>>> steps = {
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
  };
  Floats a = numbers(1001, 1), b = numbers(1001, 2);
  std::reverse(b.begin(), b.begin() + 22);
  for (const Isa isa : isas())
    for (const auto& [op, exact] : steps) {
      const Floats found = run(chain_kernel(isa), {{op, 1}}, {a, b});
      const Floats with_constant = run(chain_kernel(isa), {{op, -1, 0.625f}}, {a});
      for (std::size_t i = 0; i < a.size(); ++i) {
        INFO(static_cast<int>(op) << ": " << a[i] << ", " << b[i] << " gives " << found[i]);
        REQUIRE(apart(found[i], exact(static_cast<double>(a[i]), static_cast<double>(b[i]))) <= 1.0);
        REQUIRE(apart(with_constant[i], exact(static_cast<double>(a[i]), 0.625)) <= 1.0);
      }
    }
}

TEST_CASE("chains: what is kept is there later, and parts are as the whole", "[chains]") {
  const Floats x = numbers(1003, 5);
  for (const Isa isa : isas()) {
    Floats in_place = x, sums(x.size());
    // y = c + x; sums = y * y - x; x = -y
    float* const operands[] = {in_place.data(), sums.data(), nullptr};
    const std::vector<ChainStep> steps = {{Op::load, 0},     {Op::add, -1, 0.5f}, {Op::keep, 2},
                                          {Op::multiply, 2}, {Op::subtract, 0},   {Op::keep, 1},
                                          {Op::load, 2},     {Op::negate},        {Op::keep, 0}};
    const Chain chain{steps.data(), std::ssize(steps), operands, std::ssize(operands)};
    for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 130), std::pair(130, 1003)})
      chain_kernel(isa)(chain, begin, end);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float y = x[i] + 0.5f;
      INFO(x[i]);
      REQUIRE(((in_place[i] == -y) || (y != y && in_place[i] != in_place[i])));
      const double exact = static_cast<double>(y) * static_cast<double>(y) - static_cast<double>(x[i]);
      const double scale =
          static_cast<double>(y) * static_cast<double>(y) + static_cast<double>(std::abs(x[i]));
      REQUIRE((!(std::abs(exact) < 3e38) || std::abs(static_cast<double>(sums[i]) - exact) <= 1e-6 * scale));
    }
  }
}

}  // namespace

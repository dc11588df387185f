// Steps of chains against their formulas in double precision, at sizes with and without a rest, in each instruction
// set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/chains.hpp"
#include "tests/kernels/chains_oracle.hpp"
#include "tests/kernels/isas.hpp"

namespace chains_tests {

namespace {

using namespace trainyard::kernels;
using namespace trainyard::kernels::oracle;

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
        const std::optional<double> exact = slope(each, static_cast<double>(x[i]));
        if (!exact) continue;
        INFO(each.name << " at " << x[i]);
        REQUIRE(static_cast<double>(found[i]) ==
                Approx(static_cast<double>(given[i]) * *exact).epsilon(2e-5).margin(2e-6));
      }
    }
}

TEST_CASE("chains: what goes through a ReLU that gave NaN is not stopped, as LibTorch has it", "[chains]") {
  for (const Isa isa : isas())
    REQUIRE(run(chain_kernel(isa), {{Op::through_relu, 1}},
                {{2.0f, 3.0f, 4.0f}, {not_a_number, 1.0f, 0.0f}}) == Floats{2.0f, 3.0f, 0.0f});
}

TEST_CASE("chains: two numbers, either way round", "[chains]") {
  Floats a = numbers(1001, 1), b = numbers(1001, 2);
  std::reverse(b.begin(), b.begin() + 22);
  for (const Isa isa : isas())
    for (const auto& [op, exact] : pairs()) {
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

}  // namespace chains_tests

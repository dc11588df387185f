// The hook step_screen: which rows of a series it finds odd, what it saves, and its norms.
#include <cmath>
#include <random>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <catch2/catch.hpp>

#include "plugins/hook/step_screen/norms.hpp"
#include "plugins/hook/step_screen/watch.hpp"

namespace step_screen_tests {

using step_screen::Norms;
using step_screen::Watch;
using trainyard::NamedTensor;
using trainyard::State;
using Numbers = std::vector<double>;

namespace {

/// Six logarithms that wander with the step, with noise.
Numbers row(std::mt19937& random, int step, double noise = 0.2) {
  std::normal_distribution<double> normal;
  Numbers values;
  for (int j = 0; j < 6; ++j) values.push_back(std::sin(0.003 * step + j) + noise * normal(random));
  return values;
}

Watch::Options options(std::size_t window = 64) {
  return {.pool = {"knn:5", "lof:10", "pca"}, .window = window, .refit = 16};
}

}  // namespace

TEST_CASE("step_screen: planted rows are found, with their column, and few others", "[screen]") {
  std::mt19937 random(1);
  Watch watch(options());
  int found = 0, planted = 0, others = 0;
  for (int step = 0; step < 2000; ++step) {
    Numbers now = row(random, step);
    const bool plant = step >= 150 && step % 50 == 0;
    const auto column = static_cast<std::size_t>(step / 50 % 6);
    if (plant) now[column] += std::log(20.0);
    const Watch::Verdict verdict = watch.look(now);
    CHECK(verdict.fitted == (step >= 16 + 64));
    planted += plant ? 1 : 0;
    found += plant && verdict.odd && verdict.column == column ? 1 : 0;
    others += !plant && verdict.odd ? 1 : 0;
    if (plant && verdict.odd) CHECK(std::exp(verdict.departure) == Approx(20.0).epsilon(0.8));
  }
  CHECK(found == planted);
  CHECK(others == 0);
}

TEST_CASE("step_screen: what is not finite is odd at once, and not learned from", "[screen]") {
  std::mt19937 random(2);
  Watch watch(options());
  for (int step = 0; step < 200; ++step) {
    Numbers now = row(random, step);
    const bool broken = step % 10 == 3;
    if (broken) now[2] = step % 20 == 3 ? std::nan("") : HUGE_VAL;
    const Watch::Verdict verdict = watch.look(now);
    CHECK(verdict.odd == broken);
    if (broken) CHECK(verdict.column == 2);
  }
}

TEST_CASE("step_screen: another level is odd for a while, and then how things are", "[screen]") {
  std::mt19937 random(3);
  Watch watch(options());
  std::vector<int> odd;
  for (int step = 0; step < 600; ++step) {
    Numbers now = row(random, step);
    if (step >= 300) now[0] += 5.0;
    if (watch.look(now).odd) odd.push_back(step);
  }
  REQUIRE(odd.size() == 11);
  CHECK(odd.front() == 300);
  CHECK(odd.back() == 310);
}

TEST_CASE("step_screen: a watch that goes on from its state says the same, to the bit", "[screen]") {
  for (const int at : {5, 40, 79, 80, 97, 203}) {
    std::mt19937 random(4);
    Watch whole(options());
    for (int step = 0; step < at; ++step) whole.look(row(random, step));
    State state;
    trainyard::StateWriter writer(state);
    whole.save(writer);
    Watch other(options());
    other.load(trainyard::StateReader(state));
    for (int step = at; step < at + 120; ++step) {
      Numbers now = row(random, step);
      if (step % 30 == 0) now[1] += 4.0;
      const Watch::Verdict one = whole.look(now), two = other.look(now);
      CHECK((one.odd == two.odd && one.fitted == two.fitted && one.score == two.score));
    }
  }
}

TEST_CASE("step_screen: a pool that cannot be is refused", "[screen]") {
  CHECK_THROWS_WITH(Watch({.pool = {"kmm"}}), Catch::Contains("no detector \"kmm\""));
  CHECK_THROWS_WITH(Watch({.pool = {"lof:40"}, .window = 32}), Catch::Contains("needs 41 rows"));
}

TEST_CASE("step_screen: norms are those of LibTorch, of a sample nearly", "[screen]") {
  const auto norm_of = [](const std::vector<at::Tensor>& tensors) {
    double squares = 0.0;
    for (const at::Tensor& each : tensors) {
      const double norm = at::linalg_vector_norm(each.to(at::kDouble)).item<double>();
      squares += norm * norm;
    }
    return std::sqrt(squares);
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    std::vector<NamedTensor> parameters;
    for (const auto& [name, rows] :
         {std::pair("a.weight", 300), std::pair("a.bias", 1), std::pair("b.c.weight", 7)})
      parameters.push_back({name, at::randn({rows, 101}).to(type).set_requires_grad(true)});
    parameters[0].tensor.mutable_grad() = at::randn({300, 101}).to(type);
    parameters[2].tensor.mutable_grad() = at::randn({7, 101}).to(type);
    const auto value = [&](std::size_t i) { return parameters[i].tensor.detach(); };
    for (const std::int64_t sample : {0, 4096}) {
      Norms norms(parameters, sample);
      const double within = type == at::kBFloat16 ? 1e-2 : sample == 0 ? 1e-6 : 0.03;
      REQUIRE(norms.layers() == std::vector<std::string>{"a", "b.c"});
      CHECK(norms.of_gradients()[0] == Approx(norm_of({parameters[0].tensor.grad()})).epsilon(within));
      const Numbers weights = norms.of_weights();
      CHECK(weights[0] == Approx(norm_of({value(0), value(1)})).epsilon(within));
      CHECK(weights[1] == Approx(norm_of({value(2)})).epsilon(within));
      const at::Tensor change = at::randn({300, 101}).to(type).mul_(0.1), before = value(0).clone();
      value(0).add_(change);
      CHECK(norms.of_updates()[0] == Approx(norm_of({value(0) - before})).epsilon(within));
      CHECK(norms.of_updates()[1] == 0.0);
    }
  }
}

}  // namespace step_screen_tests

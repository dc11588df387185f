// Adam's update against its formulas in double precision, and the same bits however it is shared out, in each
// instruction set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/adam.hpp"

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;

constexpr double lr = 0.01, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, decay = 0.1;

struct State {
  Floats weight, mean, square, largest;

  AdamUpdate update(const Floats& gradient, bool with_largest) {
    return {weight.data(), gradient.data(), mean.data(), square.data(),
            with_largest ? largest.data() : nullptr};
  }
  bool operator==(const State&) const = default;
};

AdamNumbers numbers_of(int step, bool decouples) {
  return {.decay = decouples ? 0.0f : static_cast<float>(decay),
          .keep = decouples ? static_cast<float>(1.0 - lr * decay) : 1.0f,
          .beta2 = static_cast<float>(beta2),
          .of_mean = static_cast<float>(1.0 - beta1),
          .of_square = static_cast<float>(1.0 - beta2),
          .rate = static_cast<float>(lr / (1.0 - std::pow(beta1, step))),
          .scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, step))),
          .epsilon = static_cast<float>(epsilon)};
}

/// An element through all its updates, as the papers write them.
double exact(double weight, const std::vector<double>& gradients, bool decouples, bool with_largest) {
  double mean = 0.0, square = 0.0, largest = 0.0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double count = static_cast<double>(t);
    const double g = gradients[t - 1] + (decouples ? 0.0 : decay * weight);
    if (decouples) weight -= lr * decay * weight;
    mean = beta1 * mean + (1.0 - beta1) * g;
    square = beta2 * square + (1.0 - beta2) * g * g;
    largest = std::max(largest, square);
    const double corrected = (with_largest ? largest : square) / (1.0 - std::pow(beta2, count));
    weight -= lr * (mean / (1.0 - std::pow(beta1, count))) / (std::sqrt(corrected) + epsilon);
  }
  return weight;
}

std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    if (supported(isa)) found.push_back(isa);
  return found;
}

TEST_CASE("Adam's kernel is Adam, decoupled decay and largest averages with it", "[adam]") {
  std::mt19937_64 random(3);
  std::normal_distribution<float> draw;
  constexpr std::size_t size = 203;
  constexpr int steps = 20;
  for (const Isa isa : isas())
    for (const bool decouples : {false, true})
      for (const bool with_largest : {false, true}) {
        State whole{Floats(size), Floats(size), Floats(size), Floats(size)};
        for (float& each : whole.weight) each = draw(random);
        const Floats start = whole.weight;
        State parts = whole;
        std::vector<std::vector<double>> gradients(size);
        for (int step = 1; step <= steps; ++step) {
          Floats gradient(size);
          for (std::size_t i = 0; i < size; ++i) {
            gradient[i] = draw(random) * (step == 3 ? 10.0f : 1.0f);
            gradients[i].push_back(static_cast<double>(gradient[i]));
          }
          const AdamNumbers numbers = numbers_of(step, decouples);
          const AdamKernel kernel = adam_kernel(isa);
          kernel(whole.update(gradient, with_largest), numbers, 0, size);
          // Shared out in odd pieces, the last one first.
          for (const auto& [begin, end] : {std::pair{101, 203}, {17, 101}, {16, 17}, {0, 16}})
            kernel(parts.update(gradient, with_largest), numbers, begin, end);
        }
        CHECK(parts == whole);
        double most = 0.0;
        for (std::size_t i = 0; i < size; ++i)
          most = std::max(
              most, std::abs(static_cast<double>(whole.weight[i]) -
                             exact(static_cast<double>(start[i]), gradients[i], decouples, with_largest)));
        CHECK(most < 2e-6);
      }
}

TEST_CASE("A gradient that is not a number is seen in the weight for good", "[adam]") {
  for (const Isa isa : isas())
    for (const bool with_largest : {false, true}) {
      State state{Floats(20, 1.0f), Floats(20), Floats(20), Floats(20)};
      Floats gradient(20, 0.5f);
      gradient[3] = std::numeric_limits<float>::quiet_NaN();
      for (int step = 1; step <= 2; ++step)
        adam_kernel(isa)(state.update(gradient, with_largest), numbers_of(step, false), 0, 20);
      CHECK(std::isnan(state.weight[3]));
      CHECK(std::isfinite(state.weight[4]));
      if (with_largest) CHECK(std::isnan(state.largest[3]));
    }
}

}  // namespace

// Adam over some steps against its formulas in double precision, and the same bits however a row is cut, in each
// instruction set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/adam.hpp"
#include "tests/kernels/isas.hpp"

namespace adam_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;

constexpr double lr = 0.01, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, decay = 0.1;

struct State {
  Floats weight, mean, square;

  AdamRow part(std::int64_t begin, std::int64_t end) {
    return {weight.data() + begin, mean.data() + begin, square.data() + begin, end - begin};
  }
  bool operator==(const State&) const = default;
};

AdamStep step_of(int step, bool decouples) {
  return adam_step({lr, beta1, beta2, epsilon, decay, decouples}, step);
}

/// An element through all its updates, as the papers write them.
double exact(double weight, const std::vector<double>& gradients, bool decouples) {
  double mean = 0.0, square = 0.0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double count = static_cast<double>(t);
    const double g = gradients[t - 1] + (decouples ? 0.0 : decay * weight);
    if (decouples) weight -= lr * decay * weight;
    mean = beta1 * mean + (1.0 - beta1) * g;
    square = beta2 * square + (1.0 - beta2) * g * g;
    const double corrected = square / (1.0 - std::pow(beta2, count));
    weight -= lr * (mean / (1.0 - std::pow(beta1, count))) / (std::sqrt(corrected) + epsilon);
  }
  return weight;
}

TEST_CASE("Adam by rows is Adam, decoupled decay with it", "[adam]") {
  std::mt19937_64 random(3);
  std::normal_distribution<float> draw;
  constexpr std::size_t size = 203;
  for (const Isa isa : isas())
    for (const bool decouples : {false, true}) {
      const AdamKernels& kernels = adam_kernels(isa);
      State whole{Floats(size), Floats(size), Floats(size)};
      for (float& each : whole.weight) each = draw(random);
      const Floats start = whole.weight;
      State parts = whole;
      std::vector<std::vector<double>> gradients(size);
      for (int step = 1; step <= 20; ++step) {
        Floats gradient(size);
        for (std::size_t i = 0; i < size; ++i) {
          gradient[i] = draw(random) * (step == 3 ? 10.0f : 1.0f);
          gradients[i].push_back(static_cast<double>(gradient[i]));
        }
        kernels.step(whole.part(0, size), gradient.data(), step_of(step, decouples));
        // In odd pieces, the last one first.
        for (const auto& [begin, end] : {std::pair{101, 203}, {17, 101}, {16, 17}, {0, 16}})
          kernels.step(parts.part(begin, end), gradient.data() + begin, step_of(step, decouples));
      }
      CHECK(parts == whole);
      double most = 0.0;
      for (std::size_t i = 0; i < size; ++i)
        most = std::max(most, std::abs(static_cast<double>(whole.weight[i]) -
                                       exact(static_cast<double>(start[i]), gradients[i], decouples)));
      CHECK(most < 2e-6);
    }
}

}  // namespace

}  // namespace adam_tests

// Linear layers forward and back against plain sums in double precision, in each instruction set.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/linear.hpp"
#include "tests/kernels/isas.hpp"

namespace linear_tests {

namespace {

using namespace trainyard::kernels;
using Floats = std::vector<float>;

std::size_t size(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

/// A layer with what goes in and comes out of it, and a number behind each that has to stay.
struct Layer {
  static constexpr float guard = 1234.5F;
  LinearShape shape;
  Floats x, weight, bias, y, given, x_gradient, weight_gradient, bias_gradient, scratch;

  Layer(const LinearShape& of, const LinearKernels& kernels) : shape(of) {
    std::mt19937 random(7);
    const auto drawn = [&](std::int64_t rows, std::int64_t columns) {
      Floats numbers(size(rows, columns));
      std::normal_distribution<float> normal;
      for (float& each : numbers) each = normal(random);
      numbers.push_back(guard);
      return numbers;
    };
    x = x_gradient = drawn(of.rows, of.in);
    weight = drawn(of.out, of.in);
    weight_gradient = drawn(of.out, of.in);
    bias = drawn(1, of.out);
    bias_gradient = drawn(1, of.out);
    given = y = drawn(of.rows, of.out);
    scratch.assign(static_cast<std::size_t>(kernels.scratch_floats(of)) + 1, guard);
  }

  LinearBackward back() {
    return {.shape = shape,
            .x = x.data(),
            .weight = weight.data(),
            .y = y.data(),
            .given = given.data(),
            .x_gradient = x_gradient.data(),
            .weight_gradient = weight_gradient.data(),
            .bias_gradient = bias_gradient.data(),
            .scratch = scratch.data()};
  }
  bool kept_guards() const {
    for (const Floats* each : {&x, &weight, &bias, &y, &given, &x_gradient, &weight_gradient, &bias_gradient})
      if (each->back() != guard) return false;
    return scratch.back() == guard;
  }
};

struct Sum {
  double value = 0.0, of_sizes = 0.0;
  void add(double term) {
    value += term;
    of_sizes += std::abs(term);
  }
};

void check(float found, const Sum& expected) {
  if (std::abs(found - expected.value) > 2e-6 * expected.of_sizes + 1e-30)
    CHECK(found == Approx(expected.value));
}

void check_forward(const Layer& l, bool has_bias) {
  const LinearShape& s = l.shape;
  for (std::int64_t n = 0; n < s.rows; ++n)
    for (std::int64_t o = 0; o < s.out; ++o) {
      Sum sum;
      for (std::int64_t i = 0; i < s.in; ++i)
        sum.add(static_cast<double>(l.x[size(n, s.in) + size(i, 1)]) * l.weight[size(o, s.in) + size(i, 1)]);
      if (has_bias) sum.add(l.bias[size(o, 1)]);
      if (s.relu && sum.value < 0.0) sum.value = 0.0;
      check(l.y[size(n, s.out) + size(o, 1)], sum);
    }
}

/// Against the layer as it was before, where its gradients were added to.
void check_backward(const Layer& l, const Layer& before, bool adds_weight, bool adds_bias) {
  const LinearShape& s = l.shape;
  const auto dz = [&](std::int64_t n, std::int64_t o) -> double {
    const std::size_t at = size(n, s.out) + size(o, 1);
    return s.relu && l.y[at] <= 0.0F ? 0.0 : l.given[at];
  };
  for (std::int64_t n = 0; n < s.rows; ++n)
    for (std::int64_t i = 0; i < s.in; ++i) {
      Sum sum;
      for (std::int64_t o = 0; o < s.out; ++o) sum.add(dz(n, o) * l.weight[size(o, s.in) + size(i, 1)]);
      check(l.x_gradient[size(n, s.in) + size(i, 1)], sum);
    }
  for (std::int64_t o = 0; o < s.out; ++o) {
    for (std::int64_t i = 0; i < s.in; ++i) {
      const std::size_t at = size(o, s.in) + size(i, 1);
      Sum sum;
      if (adds_weight) sum.add(before.weight_gradient[at]);
      for (std::int64_t n = 0; n < s.rows; ++n) sum.add(dz(n, o) * l.x[size(n, s.in) + size(i, 1)]);
      check(l.weight_gradient[at], sum);
    }
    Sum sum;
    if (adds_bias) sum.add(before.bias_gradient[size(o, 1)]);
    for (std::int64_t n = 0; n < s.rows; ++n) sum.add(dz(n, o));
    check(l.bias_gradient[size(o, 1)], sum);
  }
}

}  // namespace

TEST_CASE("linear layers of all sizes are what plain sums are", "[linear]") {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},    {32, 64, 32},  {32, 32, 10}, {7, 16, 16},
                                   {15, 17, 33}, {14, 48, 31}, {29, 256, 18}, {5, 257, 40}, {300, 20, 12},
                                   {3, 600, 21}, {40, 9, 300}, {1, 31, 47}};
  for (const Isa isa : isas())
    for (const auto& [rows, in, out] : sizes)
      for (const bool relu : {false, true}) {
        INFO("instruction set " << static_cast<int>(isa) << ", " << rows << " rows, " << in << " to " << out
                                << (relu ? ", ReLU" : ""));
        const LinearKernels& kernels = linear_kernels(isa);
        Layer layer({rows, in, out, relu}, kernels);
        const bool has_bias = (rows + in) % 2 == 0;
        kernels.forward({layer.shape, layer.x.data(), layer.weight.data(),
                         has_bias ? layer.bias.data() : nullptr, layer.y.data(), layer.scratch.data()});
        check_forward(layer, has_bias);
        const Layer before = layer;
        LinearBackward back = layer.back();
        back.adds_weight = out % 2 == 0;
        back.adds_bias = in % 2 == 0;
        kernels.backward(back);
        check_backward(layer, before, back.adds_weight, back.adds_bias);
        CHECK(layer.kept_guards());
        // Each by itself comes to the same bits, and the others stay.
        Layer parts = before;
        LinearBackward part = parts.back();
        part.weight_gradient = part.bias_gradient = nullptr;
        kernels.backward(part);
        CHECK(parts.x_gradient == layer.x_gradient);
        CHECK(parts.weight_gradient == before.weight_gradient);
        CHECK(parts.bias_gradient == before.bias_gradient);
      }
}

TEST_CASE("a number that is none goes through a layer and its ReLU as LibTorch has it", "[linear]") {
  for (const Isa isa : isas()) {
    const LinearKernels& kernels = linear_kernels(isa);
    Layer layer({4, 20, 18, true}, kernels);
    layer.weight[20 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();  // of output 3
    kernels.forward({layer.shape, layer.x.data(), layer.weight.data(), layer.bias.data(), layer.y.data(),
                     layer.scratch.data()});
    kernels.backward(layer.back());
    for (std::size_t n = 0; n < 4; ++n)
      for (std::size_t o = 0; o < 18; ++o) CHECK(std::isnan(layer.y[n * 18 + o]) == (o == 3));
    double sum = 0.0;
    for (std::size_t n = 0; n < 4; ++n) sum += layer.given[n * 18 + 3];
    CHECK(layer.bias_gradient[3] == Approx(sum));  // its gradient passes: NaN is not <= 0
  }
}

}  // namespace linear_tests

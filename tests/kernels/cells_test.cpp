// Cells of recurrent layers against their formulas in double precision, and gradients against differences of these:
// units that fill no vector, each instruction set, floats and halves.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cells.hpp"
#include "tests/kernels/isas.hpp"

namespace cell_tests {

namespace {

using namespace trainyard::kernels;
using Doubles = std::vector<double>;

/// What a step is given, and what it makes of it.
struct Inputs {
  Doubles from_input, from_output, before;
};
struct Outputs {
  Doubles output, memory;
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

Outputs exact(Cell cell, std::size_t units, const Inputs& in) {
  Outputs found{Doubles(units), Doubles(units)};
  for (std::size_t u = 0; u < units; ++u) {
    const auto x = [&](std::size_t gate) { return in.from_input[gate * units + u]; };
    const auto h = [&](std::size_t gate) { return in.from_output[gate * units + u]; };
    const auto sum = [&](std::size_t gate) { return x(gate) + h(gate); };
    if (cell == Cell::lstm) {
      found.memory[u] = sigmoid(sum(2)) * in.before[u] + sigmoid(sum(0)) * std::tanh(sum(3));
      found.output[u] = sigmoid(sum(1)) * std::tanh(found.memory[u]);
    } else if (cell != Cell::gru) {
      found.memory[u] = found.output[u] = cell == Cell::tanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
    } else {
      const double update = sigmoid(sum(0));
      found.output[u] = (1.0 - update) * std::tanh(x(2) + sigmoid(sum(1)) * h(2)) + update * in.before[u];
      found.memory[u] = found.output[u];
    }
  }
  return found;
}

/// Rows of floats or of the bits of halves, with a number behind the end that has to stay.
template <class T>
class Row {
 public:
  explicit Row(std::size_t size) : values_(size + 1, mark) {}
  explicit Row(const Doubles& from) : Row(from.size()) {
    for (std::size_t i = 0; i < from.size(); ++i) values_[i] = narrow(static_cast<float>(from[i]));
  }
  T* data() { return values_.data(); }
  double operator[](std::size_t i) const { return static_cast<double>(wide(values_[i])); }
  bool is_whole() const { return values_.back() == mark; }

 private:
  static constexpr T mark = 77;
  static T narrow(float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return static_cast<T>((std::bit_cast<std::uint32_t>(x) + 0x8000U) >> 16);
  }
  static float wide(T x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else
      return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  }
  std::vector<T> values_;
};

template <class T>
void check(Cell cell, std::size_t units, Isa isa, bool is_given, void (*forward)(Cell, const CellStep<T>&),
           void (*backward)(Cell, const CellGradients<T>&)) {
  INFO("cell " << static_cast<int>(cell) << ", units " << units << ", instructions " << static_cast<int>(isa)
               << ", bytes " << sizeof(T));
  std::mt19937_64 random(units);
  std::normal_distribution<double> draw;
  const auto drawn = [&](std::size_t size) {
    Doubles found(size);
    for (double& each : found) each = static_cast<double>(static_cast<float>(1.5 * draw(random)));
    return found;
  };
  const auto sums = static_cast<std::size_t>(gates_of(cell)) * units,
             kept_size = static_cast<std::size_t>(kept_values(cell)) * units;
  Inputs in{drawn(sums), drawn(sums), drawn(units)};
  const Doubles given = drawn(units), of_output = drawn(units), of_memory = drawn(units);
  const Outputs expected = exact(cell, units, in);

  Row<float> from_input(in.from_input), from_output(in.from_output), before(in.before), memory(units);
  Row<T> kept(kept_size), output(units), of_input(sums), of_sums(sums);
  const auto n = static_cast<std::int64_t>(units);
  forward(cell, {.units = n,
                 .from_input = from_input.data(),
                 .from_output = from_output.data(),
                 .before = before.data(),
                 .memory = memory.data(),
                 .kept = kept.data(),
                 .output = output.data()});
  const double digits = sizeof(T) == 4 ? 2e-6 : 0.02;
  const auto near = [&](double a, double b) {
    return std::abs(a - b) <= digits * std::max(1.0, std::abs(b));
  };
  for (std::size_t u = 0; u < units; ++u) {
    REQUIRE(near(output[u], expected.output[u]));
    REQUIRE(std::abs(memory[u] - expected.memory[u]) < 2e-6);
  }
  REQUIRE((output.is_whole() && memory.is_whole() && kept.is_whole()));
  Row<T> again(units);
  forward(cell, {.units = n,
                 .from_input = from_input.data(),
                 .from_output = from_output.data(),
                 .before = before.data(),
                 .memory = memory.data(),
                 .kept = nullptr,
                 .output = again.data()});
  for (std::size_t u = 0; u < units; ++u) REQUIRE(again[u] == output[u]);

  Row<float> by_readers(given), by_next(of_output), of_memories(of_memory);
  backward(cell, {.units = n,
                  .before = before.data(),
                  .memory = memory.data(),
                  .kept = kept.data(),
                  .given = is_given ? by_readers.data() : nullptr,
                  .of_output = by_next.data(),
                  .of_memory = of_memories.data(),
                  .of_input = of_input.data(),
                  .of_sums = of_sums.data()});
  // An output that goes through products alone leaves the gradient of the memory as it is.
  const bool has_memory = cell == Cell::lstm || cell == Cell::gru;
  // Units are independent: a difference moves all units of a gate at once.
  const auto loss = [&](std::size_t u) {
    const Outputs found = exact(cell, units, in);
    return (of_output[u] + (is_given ? given[u] : 0.0)) * found.output[u] +
           (has_memory ? of_memory[u] * found.memory[u] : 0.0);
  };
  const auto slope = [&](double& place, std::size_t u) {
    constexpr double step = 1e-5;
    const double at = place;
    place = at + step;
    const double above = loss(u);
    place = at - step;
    const double below = loss(u);
    place = at;
    return (above - below) / (2.0 * step);
  };
  for (std::size_t i = 0; i < sums; ++i) {
    const double expected_input = slope(in.from_input[i], i % units),
                 expected_output = slope(in.from_output[i], i % units);
    const double size = 5.0 * digits * std::max(1.0, std::abs(expected_input));
    REQUIRE(std::abs(of_input[i] - expected_input) <= size);
    REQUIRE(std::abs((cell == Cell::gru ? of_sums : of_input)[i] - expected_output) <= size);
  }
  for (std::size_t u = 0; u < units; ++u)
    REQUIRE(std::abs(of_memories[u] - (has_memory ? slope(in.before[u], u) : of_memory[u])) <=
            5.0 * digits * std::max(1.0, std::abs(of_memory[u])));
  REQUIRE((of_input.is_whole() && of_sums.is_whole() && of_memories.is_whole()));
}

TEST_CASE("Cells and their gradients are the formulas", "[cells]") {
  for (const Isa isa : isas())
    for (const Cell cell : {Cell::lstm, Cell::gru, Cell::tanh, Cell::relu})
      for (const std::size_t units : {1UL, 3UL, 4UL, 8UL, 16UL, 17UL, 33UL, 40UL})
        for (const bool is_given : {true, false}) {
          const CellKernels& kernels = cell_kernels(isa);
          check(cell, units, isa, is_given, kernels.forward, kernels.backward);
          check(cell, units, isa, is_given, kernels.forward_halves, kernels.backward_halves);
        }
}

}  // namespace

}  // namespace cell_tests

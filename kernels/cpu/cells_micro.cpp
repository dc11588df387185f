// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker could share
// with other units, as that code would be compiled for this set: functions of headers that it calls are trivial or
// forced inline.
#include "kernels/cpu/cells_micro.hpp"

#include "kernels/cpu/vector_math.hpp"

namespace trainyard::kernels {
namespace {

/// Units `at` to `at + count` of a row: a vector of them, or the last ones, behind which are zeros.
template <bool whole>
struct Units {
  std::int64_t at, count;

  template <class T>
  TRAINYARD_INLINE Vector from(const T* row) const {
    if constexpr (whole) return load(row + at);
    T copy[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) copy[i] = row[at + i];
    return load(copy);
  }
  template <class T>
  TRAINYARD_INLINE void to(T* row, Vector value) const {
    if constexpr (whole) return store(row + at, value);
    T copy[lanes];
    store(copy, value);
    for (std::int64_t i = 0; i < count; ++i) row[at + i] = copy[i];
  }
};

template <class Use>
TRAINYARD_INLINE void each(std::int64_t units, const Use& use) {
  std::int64_t i = 0;
  for (; i + lanes <= units; i += lanes) use(Units<true>{i, lanes});
  if (i < units) use(Units<false>{i, units - i});
}

/// The slope of the sigmoid, and of tanh, where it gave y.
TRAINYARD_INLINE Vector of_sigmoid(Vector y) {
  return y * (1.0f - y);
}
TRAINYARD_INLINE Vector of_tanh(Vector y) {
  return 1.0f - y * y;
}

template <class T>
TRAINYARD_INLINE void lstm(const CellStep<T>& s) {
  const std::int64_t n = s.units;
  each(
      n, [&](const auto& u) __attribute__((always_inline)) {
        const auto sum = [&](std::int64_t gate) __attribute__((always_inline)) {
          return u.from(s.from_input + gate * n) + u.from(s.from_output + gate * n);
        };
        const Vector in = sigmoid(sum(0)), out = sigmoid(sum(1)), forget = sigmoid(sum(2)),
                     cell = tanh(sum(3)), memory = forget * u.from(s.before) + in * cell;
        u.to(s.memory, memory);
        u.to(s.output, out * tanh(memory));
        if (s.kept == nullptr) return;
        u.to(s.kept, in);
        u.to(s.kept + n, out);
        u.to(s.kept + 2 * n, forget);
        u.to(s.kept + 3 * n, cell);
      });
}

template <class T>
TRAINYARD_INLINE void lstm(const CellGradients<T>& s) {
  const std::int64_t n = s.units;
  each(
      n, [&](const auto& u) __attribute__((always_inline)) {
        const Vector in = u.from(s.kept), out = u.from(s.kept + n), forget = u.from(s.kept + 2 * n),
                     cell = u.from(s.kept + 3 * n), seen = tanh(u.from(s.memory));
        Vector of_output = u.from(s.of_output);
        if (s.given != nullptr) of_output += u.from(s.given);
        const Vector of_memory = u.from(s.of_memory) + of_output * out * of_tanh(seen);
        u.to(s.of_input, of_memory * cell * of_sigmoid(in));
        u.to(s.of_input + n, of_output * seen * of_sigmoid(out));
        u.to(s.of_input + 2 * n, of_memory * u.from(s.before) * of_sigmoid(forget));
        u.to(s.of_input + 3 * n, of_memory * in * of_tanh(cell));
        u.to(s.of_memory, of_memory * forget);
      });
}

template <class T>
TRAINYARD_INLINE void gru(const CellStep<T>& s) {
  const std::int64_t n = s.units;
  each(
      n, [&](const auto& u) __attribute__((always_inline)) {
        const Vector update = sigmoid(u.from(s.from_input) + u.from(s.from_output)),
                     reset = sigmoid(u.from(s.from_input + n) + u.from(s.from_output + n)),
                     again = u.from(s.from_output + 2 * n),
                     hidden = tanh(u.from(s.from_input + 2 * n) + reset * again), before = u.from(s.before),
                     output = hidden + update * (before - hidden);
        u.to(s.memory, output);
        u.to(s.output, output);
        if (s.kept == nullptr) return;
        u.to(s.kept, update);
        u.to(s.kept + n, reset);
        u.to(s.kept + 2 * n, hidden);
        u.to(s.kept + 3 * n, again);
      });
}

template <class T>
TRAINYARD_INLINE void gru(const CellGradients<T>& s) {
  const std::int64_t n = s.units;
  each(
      n, [&](const auto& u) __attribute__((always_inline)) {
        const Vector update = u.from(s.kept), reset = u.from(s.kept + n), hidden = u.from(s.kept + 2 * n),
                     again = u.from(s.kept + 3 * n);
        Vector of_output = u.from(s.of_output) + u.from(s.of_memory);
        if (s.given != nullptr) of_output += u.from(s.given);
        const Vector of_update = of_output * (u.from(s.before) - hidden) * of_sigmoid(update),
                     of_hidden = of_output * (1.0f - update) * of_tanh(hidden),
                     of_reset = of_hidden * again * of_sigmoid(reset);
        u.to(s.of_input, of_update);
        u.to(s.of_input + n, of_reset);
        u.to(s.of_input + 2 * n, of_hidden);
        u.to(s.of_sums, of_update);
        u.to(s.of_sums + n, of_reset);
        u.to(s.of_sums + 2 * n, of_hidden * reset);
        u.to(s.of_memory, of_output * update);
      });
}

template <class T>
TRAINYARD_INLINE void simple(bool is_tanh, const CellStep<T>& s) {
  each(
      s.units, [&](const auto& u) __attribute__((always_inline)) {
        const Vector sum = u.from(s.from_input) + u.from(s.from_output), zero{},
                     output = is_tanh ? tanh(sum) : (sum < 0.0f ? zero : sum);  // NaN stays
        u.to(s.memory, output);
        u.to(s.output, output);
        if (s.kept != nullptr) u.to(s.kept, output);
      });
}

template <class T>
TRAINYARD_INLINE void simple(bool is_tanh, const CellGradients<T>& s) {
  each(
      s.units, [&](const auto& u) __attribute__((always_inline)) {
        const Vector output = u.from(s.kept), zero{};
        Vector of_output = u.from(s.of_output);
        if (s.given != nullptr) of_output += u.from(s.given);
        u.to(s.of_input, is_tanh ? of_output * of_tanh(output) : (output <= 0.0f ? zero : of_output));
      });
}

template <class Step>
void run(Cell cell, const Step& step) {
  if (cell == Cell::lstm) return lstm(step);
  if (cell == Cell::gru) return gru(step);
  simple(cell == Cell::tanh, step);
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(cells_, isa)
const CellKernels TRAINYARD_NAME(TRAINYARD_ISA) = {run<CellStep<float>>, run<CellGradients<float>>,
                                                   run<CellStep<std::uint16_t>>,
                                                   run<CellGradients<std::uint16_t>>};

}  // namespace trainyard::kernels

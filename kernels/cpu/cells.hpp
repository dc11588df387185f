// Cells of recurrent layers: what is done element by element in a step of a sequence, to a row of units, and on the
// way back. Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gates of Gers et al., 2000;
// Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014, in cuDNN's form, whose reset
// gate acts behind the product; and Elman, "Finding structure in time", 1990, with tanh or ReLU. The products are others': a cell takes their sums, gates behind each other.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

enum class Cell : std::uint8_t { lstm, gru, tanh, relu };

/// Gates, for which products give sums: input, output, forget, cell; update, reset, hidden; one.
constexpr std::int64_t gates_of(Cell cell) {
  return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1;
}
/// Values of each unit that the way back needs besides states.
constexpr std::int64_t kept_values(Cell cell) {
  return cell == Cell::lstm || cell == Cell::gru ? 4 : 1;
}

/// A row of a step. T is float, or std::uint16_t: the bits of bfloat16.
template <class T>
struct CellStep {
  std::int64_t units;
  const float* from_input;   ///< sums over the input, biases in them
  const float* from_output;  ///< sums over the output of the step before
  const float* before;       ///< the memory: the cells of an LSTM, the output of another
  float* memory;             ///< behind the step
  T* kept;                   ///< null: there is no way back
  T* output;
};

template <class T>
struct CellGradients {
  std::int64_t units;
  const float *before, *memory;
  const T* kept;
  const float* given;      ///< gradient of the output by whoever reads it; null: none
  const float* of_output;  ///< the same by the step behind
  float* of_memory;        ///< that of the memory behind the step, and then of the one
                           ///< before; not read with tanh or ReLU, whose output goes through products alone
  T* of_input;             ///< of the sums over the input
  T* of_sums;              ///< of a GRU: of those over the output, which are the same in others
};

struct CellKernels {
  void (*forward)(Cell cell, const CellStep<float>& step);
  void (*backward)(Cell cell, const CellGradients<float>& step);
  void (*forward_halves)(Cell cell, const CellStep<std::uint16_t>& step);
  void (*backward_halves)(Cell cell, const CellGradients<std::uint16_t>& step);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const CellKernels& cell_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels

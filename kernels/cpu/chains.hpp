// Runs chains of element-wise operations in one pass over their inputs: many numbers side by side, whose
// accumulator stays in registers from step to step. float. No bit depends on how elements are divided;
// results depend on the instruction set by rounding alone. Functions are within 4 ulp of the exact value, or
// of 1 where a comment says so; below 2^-125 they may be 0. NaN stays NaN.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// The new value of the accumulator a, from a and the operand b of a step.
enum class ChainOp : std::uint8_t {
  load,           ///< b
  keep,           ///< b becomes a
  add,            ///< a + b
  subtract,       ///< a - b
  subtract_from,  ///< b - a
  multiply,       ///< a b
  divide,         ///< a / b
  divide_into,    ///< b / a
  maximum,        ///< NaN if one is
  minimum,        ///< NaN if one is
  is_larger,      ///< 1 where a > b, 1/2 where they are equal, 0 else
  is_smaller,     ///< 1 where a < b, 1/2 where they are equal, 0 else
  // Functions of a; they have no operand.
  negate,
  absolute,
  reciprocal,
  square_root,
  exponential,
  logarithm,
  relu,
  leaky_relu,  ///< first a, where a is negative
  elu,         ///< first (exp(a) - 1), where a is negative
  sigmoid,
  tanh,
  gelu,  ///< a / 2 (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))) (Hendrycks and Gimpel, 2016); ulp of 1 below 0
  softplus,      ///< log(1 + exp(a)); ulp of 1
  hard_sigmoid,  ///< min(max(first a + second, 0), 1)
  clip,          ///< min(max(a, first), second)
  // a is the gradient of a function's result and becomes that of its argument. b is the argument or, where it
  // says so, the result.
  through_absolute,
  through_logarithm,
  through_leaky_relu,
  through_elu,
  through_gelu,
  through_softplus,
  through_hard_sigmoid,
  through_clip,         ///< a where first <= b <= second
  through_reciprocal,   ///< b is the result
  through_square_root,  ///< b is the result
  through_relu,         ///< b is the result
  through_sigmoid,      ///< b is the result
  through_tanh,         ///< b is the result
};

struct ChainStep {
  ChainOp op;
  std::int32_t operand = -1;  ///< its number in the chain; -1: none, or b is the constant `first`
  float first = 0.0f, second = 0.0f;
};

/// The first step is a load.
struct Chain {
  const ChainStep* steps;
  std::int64_t step_count;
  /// The arrays that steps read, and write by `keep`, one element per number; null: a number that is kept for
  /// later steps.
  float* const* operands;
  std::int64_t operand_count;  ///< at most chain_operands
};

constexpr std::int64_t chain_operands = 48;

/// Runs the steps for elements [begin, end). Elements may be read and written in the same place.
using ChainKernel = void (*)(const Chain& chain, std::int64_t begin, std::int64_t end);

/// Throws std::invalid_argument where the processor has not these instructions.
ChainKernel chain_kernel(Isa isa = fastest_isa());

}  // namespace trainyard::kernels

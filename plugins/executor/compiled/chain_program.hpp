// Steps of kernels/cpu/chains.hpp for a formula and for its gradients. A formula is a list of terms, each of terms
// ahead of it; the gradients are those of reverse mode, in the same elements: the terms that are needed are
// computed again, as that takes less time than to read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/chains.hpp"

namespace compiled {

using trainyard::kernels::ChainOp;
using trainyard::kernels::ChainStep;

/// An input, or what an operation makes of one or two terms. The second may be a constant: a number, or one that is
/// read in each pass.
struct Term {
  std::optional<ChainOp> op;  ///< none: an input
  std::size_t a = 0;
  std::optional<std::size_t> b;
  float first = 0.0f, second = 0.0f;    ///< of the operation; `first` is the constant, too
  std::optional<std::size_t> constant;  ///< number of the one that is read
  bool wants_gradient = false;          ///< of an input
};

/// The last term is what is to be computed, of which all others are a part; inputs come ahead of all others.
using Formula = std::vector<Term>;

struct Program {
  std::vector<ChainStep> steps;
  std::size_t rooms = 0;  ///< operands behind those that lie in memory
  /// Steps whose constant is read: by step, the number of the constant.
  std::vector<std::pair<std::size_t, std::size_t>> constants;
};

/// Of a formula, so that its programs have operands enough.
constexpr std::size_t most_inputs = 6, most_terms = 14;
static_assert(2 * (most_inputs + most_terms) + 1 <= trainyard::kernels::chain_operands);

/// The other way round: a op b is b flipped(op) a. Nothing where there is none.
std::optional<ChainOp> flipped(ChainOp op);

/// Operands: the inputs, then the result.
Program forward_program(const Formula& formula);
/// Operands: the inputs, the gradient of the result, then for each input that wants one its gradient.
Program backward_program(const Formula& formula);

}  // namespace compiled

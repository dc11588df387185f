// The nodes that work element by element on values of one shape and can be computed together.
#pragma once

#include <cstddef>
#include <vector>

#include "chain_program.hpp"
#include "progress.hpp"

namespace compiled {

/// What several nodes compute together.
struct Collected {
  Formula formula;
  std::vector<trainyard::ValueId> inputs;     ///< of the formula, in its order; each once
  std::vector<trainyard::ValueId> constants;  ///< numbers that the formula reads, in its order: initializers
  std::vector<std::size_t> nodes;             ///< the last gives the value of the formula
};

/// From node `first` on, which has one output: the most of which no value but the last is read elsewhere. No nodes
/// where that one is none of the kind.
Collected collect_chain(const Progress& progress, std::size_t first);

}  // namespace compiled

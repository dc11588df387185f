// Weights that are sums of matrices, W = W1 + W2: how a transform that makes one lets a hook scale rows of either term, so
// that the two do not lean on each other (co-matrix row dropout; Thakker et al., "Doping", MLSys 2021).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/graph/graph.hpp>

TRAINYARD_CONTRACT("helpers/co_matrix.hpp");

namespace trainyard {

/// Scales of rows are whole numbers of this unit, 1 << 20: they are constants of the graph then and no buffers, and no
/// checkpoint, export or prediction has what a hook wrote for a step.
inline constexpr std::int32_t row_scale_one = 1 << 20;

/// The constant that scales the rows of the term TERM is named TERM + this.
inline constexpr std::string_view row_scale_suffix = ".row_scale";

/// A term of a weight, and the scales of its rows.
struct CoMatrix {
  std::string term;  ///< "lstm1.weight_ih.sparse"
  at::Tensor
      scales;  ///< int32 [rows, 1], the network's own: what is written there acts from the next pass on
};

/// Returns the terms of all such weights of a network, in the order of its graph.
inline std::vector<CoMatrix> co_matrices(const Graph& graph) {
  std::vector<CoMatrix> found;
  for (const GraphValue& value : graph.values)
    if (value.initializer.defined() && value.name.ends_with(row_scale_suffix))
      found.push_back({value.name.substr(0, value.name.size() - row_scale_suffix.size()), value.initializer});
  return found;
}

}  // namespace trainyard

// The layers of a network as scorers see them: matrices of weights, and what these were multiplied with.
#pragma once

#include <string>
#include <vector>

#include <trainyard/network.hpp>
#include <trainyard/scorer.hpp>

#include "../../transform/filters/channels.hpp"

namespace pruning {

using namespace trainyard;

/// A layer whose weights are scored.
struct PrunedLayer {
  std::string name;
  std::size_t node = 0;  ///< of the graph
  at::Tensor
      matrix;  ///< [outputs, inputs of a group, taps], a view of the network's own weight, past autograd
  at::Tensor weight;  ///< the parameter itself
  std::int64_t groups = 1;
  const filters::Layer* channels = nullptr;

  ScoredLayer scored() const { return {name, matrix.to(at::kFloat), groups}; }
};

/// Returns the layers whose weight is a parameter that no other layer has, and whose name a pattern fits. `channels`, of the
/// network's graph, outlives them. Throws ConfigError for a pattern that fits none.
std::vector<PrunedLayer> layers_of(const Network& network, const filters::Channels& channels,
                                   const std::vector<std::string>& patterns);

/// Returns a parameter's shape as a matrix [outputs, inputs of a group, taps].
at::Tensor as_matrix(const Node& node, const at::Tensor& weight);

/// Returns what the weights of a layer are multiplied with, [samples, inputs, taps, positions].
at::Tensor patches(const Node& node, const at::Tensor& weight, const at::Tensor& input, std::int64_t samples);

}  // namespace pruning

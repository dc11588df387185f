// Passes of the network over the set of samples: what scorers see, and what no longer matters.
#pragma once

#include <vector>

#include <trainyard/loss.hpp>
#include <trainyard/network.hpp>
#include <trainyard/scorer.hpp>

#include "layers.hpp"
#include "sample.hpp"

namespace pruning {

/// What a layer was scored by, and what it is like.
struct LayerScores {
  at::Tensor scores;           ///< in double, on the CPU
  std::int64_t positions = 1;  ///< that its weights are used at, for a sample
};

/// Scores all layers. Where `stopping` is true between two batches it returns early, with nothing.
std::vector<LayerScores> scores_of(const Scorer& scorer, Network& network,
                                   const std::vector<PrunedLayer>& layers, const SampleSet& set,
                                   const Loss& loss, Host& host, const std::function<bool()>& stopping);

/// Sets weights to zero, in place, that no longer matter: those on which no output depends for any sample of the set, the
/// bias and the normalisation of outputs whose weights are all zero. Returns the number of parameters that are not zero.
std::int64_t propagate(Network& network, const std::vector<PrunedLayer>& layers, const SampleSet& set);

std::int64_t nonzeros(const Network& network);

}  // namespace pruning

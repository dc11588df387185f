// The small set of samples that layers are looked at with, S in the papers of SiPP and PFP.
#pragma once

#include <string>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/host.hpp>
#include <trainyard/tool.hpp>

namespace pruning {

using namespace trainyard;

struct SampleSet {
  std::vector<Batch> batches;  ///< on the run's device
  std::int64_t size = 0;
  double weight = 0.0;    ///< of all items that the loss averages over
  bool held_out = false;  ///< the run did not train on them
};

/// Returns how many samples bound the error of all neurons at once: 3 log(8 largest x all / 1e-16), where `largest` is the
/// number of neurons of the widest layer, and `all` that of all layers.
std::int64_t samples_for(double largest, double all);
/// The same, with the neurons of a graph's linear and convolutional layers.
std::int64_t samples_for(const Graph& graph);

/// Draws `count` samples of the training data that the run's `take` leaves out, and at most half of these; where it leaves
/// none out, of those that the run trains on. Samples of the run's other splits are never among them.
SampleSet draw(Workshop& shop, Host& host, std::int64_t count, std::int64_t batch_size);

}  // namespace pruning

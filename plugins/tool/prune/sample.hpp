// The small set of samples that layers are looked at with, S in the papers of SiPP and PFP.
#pragma once

#include <string>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/host.hpp>
#include <trainyard/manifest.hpp>
#include <trainyard/tool.hpp>

namespace pruning {

using namespace trainyard;

/// Which training data they are drawn from: what the run's `take` leaves out, or what it gives.
enum class SamplesOf : std::uint8_t { rest, take };

struct SampleSet {
  std::vector<Batch> batches;  ///< on the run's device
  std::int64_t size = 0;
  double weight = 0.0;             ///< of all items that the loss averages over
  SamplesOf of = SamplesOf::take;  ///< where they are from
};

/// Returns how many samples bound the error of all neurons at once: 3 log(8 largest x all / 1e-16), where `largest` is the
/// number of neurons of the widest layer, and `all` that of all layers.
std::int64_t samples_for(double largest, double all);
/// The same, with the neurons of a graph's linear and convolutional layers.
std::int64_t samples_for(const Graph& graph);

/// Draws `count` samples, of the rest at most half of it. Where there is no rest, or the dataset does not read it (its inputs
/// are all 0), they are of what the run takes. Samples of the run's other splits are never among the rest.
SampleSet draw(Workshop& shop, Host& host, SamplesOf of, std::int64_t count, std::int64_t batch_size);

}  // namespace pruning

template <>
struct trainyard::Words<pruning::SamplesOf> {
  static constexpr std::string_view words[] = {"rest", "take"};
};

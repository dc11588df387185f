#include "cut.hpp"

#include <algorithm>
#include <atomic>

#include "../../shared/partition/machine.hpp"
#include "../../shared/partition/metis.hpp"
#include "../../shared/partition/stream.hpp"
#include "lib/printed.hpp"

namespace partitioned {

using partition::Algorithm;
using partition::Cluster;
namespace {

/// Exchanges names of clusters so that the loss, which the thread of the run computes, is in its cluster.
void put_loss_first(std::vector<Cluster>& clusters, Cluster of_loss) {
  for (Cluster& each : clusters)
    if (each == of_loss)
      each = 0;
    else if (each == 0)
      each = of_loss;
}

Cut cut_by_heft(const Step& step, const CutOptions& options) {
  static const std::atomic<bool> never = false;
  const std::size_t nodes = step.graph.nodes.size();
  const std::vector<Cluster> first(nodes, 0);
  const std::vector<Segment> chains =
      segments_of(step.graph, step.dependences.dependences(), {first, first}, step.apart);
  const partition::Tasks tasks = tasks_of(chains, step.dependences, step.times, step.overheads);
  std::vector<Cluster> masters =
      partition::schedule_by_heft(tasks, options.clusters, step.overheads.latency, never).masters;
  put_loss_first(masters, masters[chains.size()]);
  Cut made{{first, first}, std::nullopt};
  for (std::size_t i = 0; i < chains.size(); ++i)
    for (const std::size_t node : chains[i].nodes) {
      made.placement.forward[node] = masters[i];
      made.placement.backward[node] = masters[chains.size() + 1 + i];
    }
  return made;
}

}  // namespace

Cut cut(const Step& step, const CutOptions& options) {
  if (options.algorithm == Algorithm::heft) return cut_by_heft(step, options);
  const partition::Graph& graph = step.dependences.folded();
  const std::vector<std::uint32_t> order = partition::order_of(graph, options.order, 0);
  const partition::Settings settings{.clusters = options.clusters, .lambda = options.lambda, .order = order};
  std::vector<Cluster> assigned, masters;
  if (options.clusters == 1) {  // for which METIS divides by zero
    assigned.assign(graph.edges.size(), 0);
    masters.assign(graph.degrees.size(), 0);
  } else if (options.algorithm == Algorithm::metis) {
    partition::NodesCut made = partition::cut_by_metis(graph, false, settings);
    assigned = std::move(made.edges.clusters);
    masters = std::move(made.masters);
  } else {
    assigned = partition::stream(graph, options.algorithm, settings).clusters;
    masters = partition::masters_of(graph, assigned, options.clusters);
  }
  put_loss_first(masters, masters[step.dependences.loss()]);
  masters.resize(step.dependences.nodes());
  return {{masters, masters}, partition::quality_of(graph, assigned, options.clusters)};
}

std::string described(Algorithm algorithm, const Cut& cut, const std::vector<Segment>& segments,
                      const std::vector<double>& work, double predicted, double alone) {
  std::string text = trainyard::lib::printed("%-13s", std::string(partition::word_of(algorithm)).c_str());
  if (cut.quality)
    text += trainyard::lib::printed(
        "replication %.3f, imbalance %.3f by weight, %.3f by count, communication %.0f us; ",
        cut.quality->replication, cut.quality->weight_imbalance, cut.quality->count_imbalance,
        cut.quality->communication);
  std::vector<std::size_t> nodes(work.size(), 0);
  for (const Segment& segment : segments) nodes[segment.forward] += segment.nodes.size();
  text += "nodes";
  for (const std::size_t count : nodes) text += " " + std::to_string(count);
  text += trainyard::lib::printed(" in %zu segments, of", segments.size());
  double most = 0.0, all = 0.0;
  for (const double each : work) {
    text += trainyard::lib::printed(" %.0f", each);
    most = std::max(most, each);
    all += each;
  }
  return text + trainyard::lib::printed(
                    " us, the most %.2f times the mean; predicted %.0f us, %.2fx of one thread's",
                    most * static_cast<double>(work.size()) / all, predicted, alone / predicted);
}

}  // namespace partitioned

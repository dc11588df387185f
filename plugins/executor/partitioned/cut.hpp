// Cuts a step into clusters, and says what each way to cut it is worth.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../../shared/partition/algorithm.hpp"
#include "../../shared/partition/quality.hpp"
#include "segments.hpp"
#include "step_graph.hpp"

namespace partitioned {

struct CutOptions {
  partition::Algorithm algorithm = partition::Algorithm::heft;
  std::size_t clusters = 2;
  double lambda = 1.0;
  partition::Order order = partition::Order::given;
};

struct Cut {
  Placement placement;
  std::optional<partition::Quality> quality;  ///< of the cut of edges; list scheduling has none
};

/// What a cut goes by.
struct Step {
  const trainyard::Graph& graph;
  const StepGraph& dependences;
  const Times& times;
  const std::vector<bool>& apart;
  const Overheads& overheads;
};

/// Cuts by one of the ways. The loss is in cluster 0. List scheduling takes chains as one task: they have nothing to run at once,
/// and to leave one in the middle costs more than a node.
Cut cut(const Step& step, const CutOptions& options);

/// Returns a line: replication, imbalances and communication of the cut, nodes and time of each cluster.
std::string described(partition::Algorithm algorithm, const Cut& cut, const std::vector<Segment>& segments,
                      const std::vector<double>& work, double predicted, double alone);

}  // namespace partitioned

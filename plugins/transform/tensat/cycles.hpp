// Cycles that rewrites make among classes: b = relu(a W), and a W merged with b W needs b before it is there. A filter keeps the
// graph acyclic, so that any choice of nodes from its root can be computed. Yang, Phothilimthana, Wang, Willsey, Roy, Pienaar,
// "Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (arXiv 2101.01332), section 5.2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "egraph.hpp"

namespace tensat {

/// Says of each question whether the class `to` can be come to from the class `from`, by the nodes of an index.
struct Question {
  ClassId from = 0, to = 0;
};
std::vector<bool> answers(const Index& index, std::span<const Question> questions);

/// Returns whether one of `to` can be come to from one of `from`, in a graph that is being changed.
bool reaches(const EGraph& graph, std::span<const ClassId> from, std::span<const ClassId> to);

/// Blacklists nodes until no cycle can be come to from the roots: in each cycle the youngest one, which is never one that keeps the input
/// (EGraph::seal_input). Needs a graph that was rebuilt. Returns how many.
std::size_t break_cycles(EGraph& graph, std::span<const ClassId> roots);

}  // namespace tensat

// Puts sums W = K + S in the place of weights in a graph: K of a structure, S with zeros, or K alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>

#include "structure.hpp"

namespace doped {

using namespace trainyard;

struct Request {
  Form form = Form::kp;
  double target_cf = 10.0;          ///< rows x columns over the numbers that are left in the end
  double share = 0.25;              ///< of these numbers, those of K at most
  bool alone = false;               ///< no S: K has them all
  std::vector<std::string> layers;  ///< patterns of names of nodes
  std::uint64_t seed = 0;
  std::string start;  ///< safetensors file of dense weights to begin with; empty: none
};

/// A weight that a pattern fits, "lstm1.weight_ih", and what becomes of it.
struct Replacement {
  std::size_t node = 0, input = 0;  ///< which input of which node of the graph
  std::string weight;
  Structure structure;
  std::int64_t nonzeros = 0;  ///< that S has in the end
  std::string obstacle;       ///< why it stays as it is; empty where it does not

  /// Says what becomes of it, for people.
  std::string text() const;
};

/// Returns what becomes of a graph's weights, in its order. Those stay as they are that several nodes read, and those so
/// small that the target leaves K no room. Throws ConfigError where all would, where a pattern fits no layer, and where a
/// layer that is named in full would.
std::vector<Replacement> replacements(const Graph& graph, const Request& request);

/// Returns the graph with these replacements. The weight's name is that of the sum; its terms are parameters named by it,
/// "fc1.weight.kron.left", "fc1.weight.sparse". S begins as the weight did, or, with `start`, as what K leaves of the weight in
/// the file, to which K is the nearest. Throws ConfigError where the file has no such weight.
Graph rewritten(Graph graph, const std::vector<Replacement>& replacements, const Request& request);

/// Ending of the name of S.
inline constexpr std::string_view sparse_suffix = ".sparse";

}  // namespace doped

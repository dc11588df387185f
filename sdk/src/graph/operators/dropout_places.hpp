// Finds the places in a graph where dropout may act.
#pragma once

#include <optional>

#include <trainyard/dropout.hpp>
#include <trainyard/graph/graph.hpp>

namespace trainyard {

/// Returns sites, weights, linear layers and cells, each in the order of the nodes. Needs shapes.
DropoutPlaces find_dropout_places(const Graph& graph);

/// Returns the number of a node among the sites; none for one that is no site.
std::optional<std::size_t> site_number(const Graph& graph, const Node& node);

/// Returns the number of a recurrent node among the cells; none for one that runs in both directions.
std::optional<std::size_t> cell_number(const Graph& graph, const Node& node);

/// Returns how many nodes a linear layer with an output site stands for: its own, the ReLU's, the site's;
/// they follow each other.
std::size_t nodes_of(const DropoutLinear& linear);

/// Returns how many nodes after linear layer `index` of the graph are its activation, a function of single
/// elements, or a Reshape before it; each alone reads the one before.
std::size_t activation_nodes(const Graph& graph, std::size_t index);

}  // namespace trainyard

// Takes channels out of a network: as zeros of the weights that make and read them, or out of the tensors themselves.
#pragma once

#include <set>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/named_tensor.hpp>

#include "channels.hpp"
#include "kept_file.hpp"

namespace filters {

/// Channels that are taken away, by their roots.
using Gone = std::set<Channel>;

/// Returns the channels that a file takes away. Throws ConfigError that names the layer where the file does not fit the
/// network, where it takes a channel away that cannot be cut, or one that it keeps in another layer.
Gone gone_by(const Channels& channels, const Kept& kept);

/// Returns what is left of each layer that loses outputs.
Kept kept_after(const Channels& channels, const Gone& gone);

/// Returns the graph without these channels. Its tensors are new where they became smaller; all names stay. Throws
/// ConfigError where nothing would be left of a tensor.
Graph cut(Graph graph, const Channels& channels, const Gone& gone);

/// Sets to zero, in place, what makes and what reads these channels among tensors with the names of the graph's values.
void mask(const Graph& graph, const Channels& channels, const Gone& gone,
          const std::vector<NamedTensor>& tensors);

/// Returns tensors with the names of the graph's values as `cut` leaves these, in the order in which they are given.
std::vector<NamedTensor> cut_tensors(const Graph& graph, const Channels& channels, const Gone& gone,
                                     std::vector<NamedTensor> tensors);

/// Returns the number of parameters that `cut` would leave.
std::int64_t parameters_after(const Graph& graph, const Channels& channels, const Gone& gone);

}  // namespace filters

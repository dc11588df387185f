// The members of an array as one graph, their nodes side by side: what `compiled` makes a plan of.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>
#include <trainyard/named_tensor.hpp>

namespace hfta {

using namespace trainyard;

struct SideBySide {
  /// A node of a member.
  struct Own {
    std::size_t member, number;
  };

  Graph
      graph;  ///< takes the inputs of one network, gives the outputs of all, one behind the other: [B * N, ...]
  std::vector<std::optional<Own>> own;  ///< by node: none of a node that several members have together
  std::vector<std::string> together;    ///< names of a member's nodes that are one for all
};

/// `members`: the parameters and running statistics of each, by the names that they have in `one`, which are shared and not copied;
/// other constants are those of `one`. What depends on no parameter is computed once. Convolutions of what all members see are
/// one of as many channels as all have, where those of a member leave lanes of the processor's registers unused, and so is what lies
/// between them and the first node that needs the members apart. `draws`: a dropout acts, of each member by itself.
SideBySide side_by_side(const Graph& one, const std::vector<std::vector<NamedTensor>>& members, bool draws);

}  // namespace hfta

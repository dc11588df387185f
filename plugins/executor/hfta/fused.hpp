// A value of an array of models: the tensor of a graph's value for all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/network.hpp>

namespace hfta {

using namespace trainyard;

/// How the members lie in a tensor.
enum class Layout : std::uint8_t {
  shared,    ///< [N, ...]: the same for all members
  members,   ///< [B, N, ...]
  channels,  ///< [N, B * C, ...]: what a convolution of B times as many groups takes
  apart,     ///< a tensor [N, ...] for each member
};

/// Where the gradient of a parameter of all members is gathered.
struct Gathered {
  at::Tensor gradient;    ///< [B, ...], each member's without gaps
  bool has_some = false;  ///< of this step: what comes is added
};

struct Fused {
  at::Tensor tensor;  ///< undefined: an input that is not given, or `each`
  Layout layout = Layout::shared;
  std::vector<at::Tensor> each = {};  ///< of the members, where they are apart
  Gathered* gathered = nullptr;       ///< of a parameter: a rule may put its gradient there, past autograd
};

/// A node as it is run for all members at once.
struct FusedNode {
  const Graph& graph;
  const Node& node;
  std::size_t number;                  ///< in the graph
  std::int64_t members;                ///< B
  std::span<GraphNetwork* const> own;  ///< a network for each member, or one for all: runs the plain operator
  const ForwardContext& pass;
  bool relu = false;  ///< of its output, or of its input: one of the two below said so

  const GraphValue& value(ValueId id) const { return graph.values[static_cast<std::size_t>(id)]; }
  /// The operator of a plain model on tensors of any member.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, std::size_t member = 0) const {
    return own[own.size() == 1 ? 0 : member]->run_node(number, inputs, pass);
  }
};

/// [B, N, ...], without a copy unless they are apart.
at::Tensor as_members(const Fused& value, std::int64_t members);
/// [N, B * C, ...].
at::Tensor as_channels(const Fused& value, std::int64_t members);

/// The outputs of a node, by the rule of its operator, or where there is none for this node, member by member.
std::vector<Fused> run_fused(const FusedNode& node, std::span<const Fused> inputs);

/// Whether a rule runs the node for all members at once; else it is run member by member.
bool has_rule(const Graph& graph, const Node& node, bool dropout);

/// Whether the rule of the node takes a ReLU that alone reads its output.
bool is_ahead_of_relu(const Graph& graph, const Node& node);
/// Whether it takes one whose output it alone reads.
bool is_behind_relu(const Graph& graph, const Node& node);

/// The operators that have a rule, sorted.
std::vector<std::string_view> fused_operators();

}  // namespace hfta

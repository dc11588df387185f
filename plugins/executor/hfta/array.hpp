// B models of one graph, trained as one. Their parameters are a matrix, a row a member: whatever is done to members -
// to clip, to freeze, to take out, to put in - is done to rows.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/network.hpp>
#include <trainyard/named_tensor.hpp>

#include "fused.hpp"
#include "planned.hpp"

namespace hfta {

/// How passes run: node by node for all members (fused.hpp), or by a plan of `compiled` (planned.hpp).
enum class Passes : std::uint8_t { automatic, compiled, eager };

/// Where a parameter lies in a row.
struct RowRange {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t first = 0, count = 0;
};

class Array {
 public:
  /// A network for each member, as a run would begin with it; they are used up. `log` is told of plans that are made. Throws ConfigError
  /// where one has no graph, a constant of them differs, or passes cannot be compiled that are to be.
  explicit Array(std::vector<std::unique_ptr<Network>> networks, Passes passes = Passes::eager,
                 Planned::Log log = {});

  std::int64_t members() const { return weights_.size(0); }
  const std::vector<RowRange>& places() const { return places_; }

  /// The outputs [B, N, ...] for the inputs of one batch, which all members see. Throws PluginError where they are not
  /// those of the graph.
  at::Tensor forward(const std::vector<at::Tensor>& inputs, const ForwardContext& pass);

  /// Puts the gradients of `losses` [B], each times `share`, in the place of those that are there, or adds them.
  void backward(const at::Tensor& losses, double share, bool adds);

  /// Parameters [B, P], and their gradients.
  const at::Tensor& weights() const { return weights_; }
  const at::Tensor& gradients() const { return gradients_; }

  /// Parameters and running statistics of a member, by handle: what is written to them is its.
  std::vector<NamedTensor> parameters(std::int64_t member) const;
  std::vector<NamedTensor> buffers(std::int64_t member) const;
  /// A row of `matrix`, laid out as the weights are, as the parameters of a member.
  std::vector<NamedTensor> row(const at::Tensor& matrix, std::int64_t member) const;

  /// The running statistics of all members [B, ...], by name.
  const std::vector<NamedTensor>& statistics() const { return statistics_; }

  /// Takes weights [B, P] and statistics in the place of its own: another number of members, perhaps.
  void take(at::Tensor weights, std::vector<NamedTensor> statistics);
  /// Leaves the members that `rows` names, in its order.
  void keep(const std::vector<std::int64_t>& rows);

  /// How passes run, for the log: empty where every node is run for all members at once.
  std::string text() const;

 private:
  void bind();
  void find_relus();
  bool is_compiled(Passes passes) const;

  std::vector<std::unique_ptr<GraphNetwork>> networks_;  ///< of each member where dropout acts, else one
  std::vector<GraphNetwork*> own_;                       ///< the same
  const Graph* graph_ = nullptr;                         ///< of the first
  std::vector<RowRange> places_;
  std::vector<ValueId> of_places_, of_statistics_;
  at::Tensor weights_, gradients_;
  std::vector<NamedTensor> statistics_;
  std::vector<bool> has_relu_,
      is_taken_;                    ///< of the nodes: does the ReLU beside it; is one that another does
  std::vector<Fused> frame_;        ///< initializers stay in it
  std::vector<at::Tensor> leaves_;  ///< parameters [B, ...]: views of their matrix
  std::deque<Gathered> gathered_;   ///< gradients of the leaves, views as well
  bool has_plan_ = false;           ///< passes are compiled
  Planned::Log log_;
  std::unique_ptr<Planned> planned_;
};

}  // namespace hfta

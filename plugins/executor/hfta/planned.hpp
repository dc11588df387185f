// The passes of an array by plans of the executor `compiled`: the members' graph is compiled for the shapes of a batch, forward and
// backward, and kept.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/network.hpp>
#include <trainyard/named_tensor.hpp>

#include "../compiled/plan.hpp"
#include "side_by_side.hpp"

namespace hfta {

class Planned {
 public:
  using Log = std::function<void(const std::string&)>;

  /// `one`: the graph of each member. `members`: parameters and running statistics of each, of which the parameters lie in `weights` [B, P]
  /// and their gradients go to the same places of `gradients`. `own`: a network for each member whose dropout draws, or one for all:
  /// it computes the nodes for which a plan has no rule. They outlive it.
  Planned(const Graph& one, const std::vector<std::vector<NamedTensor>>& members, at::Tensor weights,
          at::Tensor gradients, std::span<GraphNetwork* const> own, Log log);
  ~Planned();

  /// Whether members of such a network are faster by a plan than rule by rule (fused.hpp).
  static bool pays(const Graph& one);

  /// The outputs [B, N, ...]. In training one pass at a time, each gone back before the next.
  at::Tensor forward(const std::vector<at::Tensor>& inputs, const ForwardContext& pass);
  /// Whether the gradients that come next are added to those that are there.
  void adds(bool adds) { adds_ = adds; }

  /// How passes run, for the log.
  std::string text() const;

 private:
  class Backward;

  struct Kept {
    compiled::PlanKey key;
    std::shared_ptr<compiled::Plan> plan;
    std::vector<at::Tensor> gradients;  ///< of its parameters, where they belong
    bool reaches_all = false;           ///< parameters of the members
  };
  Kept& kept_for(const std::vector<at::Tensor>& inputs, const ForwardContext& pass);
  /// At which a dropout acts.
  std::vector<std::size_t> dropped_nodes(const ForwardContext& pass) const;
  std::shared_ptr<compiled::Plan> make(const compiled::PlanKey& key);
  std::vector<at::Tensor> run_node(std::size_t node, std::span<const at::Tensor> inputs,
                                   const ForwardContext& pass);
  void back(Kept& of, const at::Tensor& gradient);
  void take_copies(const compiled::OtherRows& found);

  std::vector<std::optional<SideBySide::Own>> own_nodes_;
  std::vector<std::string> together_;
  GraphNetwork network_;
  at::Tensor weights_, gradients_;
  std::span<GraphNetwork* const> own_;
  Log log_;
  compiled::Copies copies_;  ///< that dropouts made last
  std::list<Kept> kept_;     ///< the last used first
  bool adds_ = false;
};

}  // namespace hfta

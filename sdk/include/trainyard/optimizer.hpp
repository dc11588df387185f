// optimizer/1: makes a step over parameter groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("optimizer.hpp");

namespace trainyard {

/// A line of `groups = [{ match = ["*.bias"], weight_decay = 0.0 }]`.
struct GroupRule {
  std::vector<std::string> match;
  std::optional<double> lr;
  std::optional<double> lr_factor;
  std::optional<double> weight_decay;

  static void describe(Fields<GroupRule>& m);
};

/// Options that every optimizer has.
struct OptimizerCommon {
  double lr = 0.0;
  double weight_decay = 0.0;
  std::string decay = "all";
  std::vector<GroupRule> groups;

  static void describe(Fields<OptimizerCommon>& m);
};

/// Parameters that share hyper-parameters. The host writes `lr` and `momentum` before every step.
struct ParamGroup {
  std::vector<std::string> names;
  std::vector<at::Tensor> params;  ///< leaf tensors; one without a gradient is left alone this step
  double base_lr = 0.0;
  double lr = 0.0;
  double weight_decay = 0.0;
  std::optional<double> momentum;  ///< replaces the optimizer's own, where the schedule cycles it
};

/// Splits parameters, which are in the order of the model, by `common`: one group for each distinct pair of
/// values. Throws ConfigError for a rule that matches no parameter.
std::vector<ParamGroup> make_groups(const std::vector<NamedTensor>& parameters,
                                    const OptimizerCommon& common);

class Optimizer : public Plugin {
 public:
  static constexpr Kind kind{"optimizer", 1};
  using Common = OptimizerCommon;

  /// Called once with the groups that the optimizer shall own, before optimizer_ready.
  virtual void open(std::vector<ParamGroup> groups) { groups_ = std::move(groups); }

  /// Updates every parameter that has a gradient once, without gradient tracking. Must not wait for the
  /// device. A gradient may be sparse (COO, coalesced, its first dimension the sparse one): rows of a table
  /// that the batch touched. Throws ConfigError where the optimizer takes no such gradients.
  virtual void step() = 0;

  /// Updates one group alone, where parts of a model are updated at different times: group by group it does
  /// what `step` does, to the bit. By default it calls `step` while the gradients of the other groups are put
  /// aside; that is not enough for an optimizer that counts its steps by itself, or reads several groups at
  /// once. Throws std::out_of_range.
  virtual void step_group(std::size_t group);

  /// Returns whether ParamGroup::momentum replaces something: a momentum, or a decay of the averaged
  /// gradient. A schedule that cycles the momentum is refused where the optimizer has none.
  virtual bool has_momentum() const { return false; }

  std::vector<ParamGroup>& groups() { return groups_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }

  Common common;

 protected:
  std::vector<ParamGroup> groups_;
};

}  // namespace trainyard

// The base of the shipped optimizers: slots of state for each parameter, the count of its updates, both saved
// and loaded by parameter name ("exp_avg/fc1.weight", "step/fc1.weight"), and lists ready for ATen's
// multi-tensor calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/optimizer.hpp>

TRAINYARD_CONTRACT("helpers/slot_optimizer.hpp");

namespace trainyard {

/// Parameters of a group with a gradient and the same number of earlier updates, and their state.
struct UpdateLists {
  std::vector<at::Tensor> params, grads;
  std::vector<std::vector<at::Tensor>>
      slots;  ///< by slot, in the order of their names; each as long as params
};

/// A derived optimizer consists of a list of slots and an `update`.
class SlotOptimizer : public Optimizer {
 public:
  struct Slot {
    std::string name;
    double initial = 0.0;
  };

  void open(std::vector<ParamGroup> groups) override;
  void step() final;
  void step_group(std::size_t group) final;
  void save(StateWriter& state) const final;
  void load(const StateReader& state) final;

 protected:
  explicit SlotOptimizer(std::vector<Slot> slots) : slots_(std::move(slots)) {}

  /// Returns the value of a parameter's slot before its first update; by default one number for each element.
  virtual at::Tensor make_slot(const Slot& slot, const std::string& name, const at::Tensor& param) const;

  /// Returns whether `update` takes sparse gradients (Optimizer::step); else one is refused.
  virtual bool takes_sparse() const { return false; }

  /// Returns whether `update` takes parameters of bfloat16 whose lower halves the network has (halves.hpp),
  /// among those of another dtype; else one is refused.
  virtual bool takes_halves() const { return false; }

  /// Return all parameters of a group with their slots, and how often parameter number `i` of them was
  /// updated: for what an optimizer does between its steps.
  const UpdateLists& lists(std::size_t group) const { return members_.at(group).lists; }
  std::int64_t updates(std::size_t group, std::size_t i) const { return members_.at(group).updates.at(i); }

  /// Updates the parameters of the lists, which are of group number `group`; `updates` counts this one.
  virtual void update(std::size_t group, UpdateLists& lists, std::int64_t updates) = 0;

 private:
  struct Members {
    UpdateLists lists;                  ///< all parameters of the group
    std::vector<std::int64_t> updates;  ///< number of updates done, of each parameter
    bool together = true;               ///< all have the same count

    void settle();
  };

  /// Returns whether every parameter of the group has a gradient; `grads` of its lists then holds them.
  bool gather(std::size_t group);

  /// Makes an update for each count of updates, where gradients are missing, or were.
  void step_apart(std::size_t group);

  /// Throws unless memory is plain, of one dtype and device, as the multi-tensor kernels need it.
  void check(const ParamGroup& group, std::size_t i) const;

  void check_layout(std::size_t group, std::size_t i, const at::Tensor& grad) const;

  template <class Function>
  void each_parameter(const Function& function) const;

  std::vector<Slot> slots_;
  std::vector<Members> members_;  ///< by group
};

/// Holds the count of updates as the fused kernels read it: one tensor on the device of a group, listed once
/// a parameter.
class StepTensors {
 public:
  at::TensorList list(const UpdateLists& lists, std::int64_t updates);

 private:
  std::vector<at::Tensor> list_;
};

}  // namespace trainyard

// The shipped optimizers for all members of an array at once: each coefficient is a column [B, 1] that broadcasts over
// the parameters [B, P], so that a step takes as many operations for one member as for many.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/executor.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>
#include <trainyard/value.hpp>

#include "array.hpp"

namespace hfta {

class ArrayOptimizer {
 public:
  /// `options`: the table [optimizer] of each member; `file`: that of the run file, whose plugin can load what
  /// state_of() gives. Throws ConfigError for an optimizer that is not fused, and where members differ in what an array
  /// has in common.
  ArrayOptimizer(std::vector<Table> options, const Table& file, const Array& array);

  /// One update of all members but those that `frozen` names. `groups`: those of the plugin that the run file names,
  /// with what hooks have made of the rate's numbers in them; what they multiply is multiplied for each member, and
  /// what they put in the place of 0 is all members'. None: as the rate says.
  void step(const Array& array, const Rate& rate, const std::vector<std::int64_t>& frozen,
            std::span<const ParamGroup> groups = {});

  /// Leaves the members that `rows` names.
  void keep(const Array& array, const std::vector<std::int64_t>& rows);

  /// What the plugin of a plain run saves; copies.
  State state_of(const Array& array, std::int64_t member) const;
  /// Has a member go on from what a plain run saved; what is not in it begins anew.
  void insert(const Array& array, std::int64_t member, const State& state);

  void save(StateWriter& state) const;
  /// Of an array of as many members. Slots that are not in it, or of other sizes, begin anew.
  void load(const StateReader& state);

  std::vector<std::string> slot_names() const;

 private:
  friend struct Update;

  /// A number of each member: as they are, and [B, 1].
  struct Column {
    std::vector<double> values;
    at::Tensor tensor;
  };

  at::Tensor column(const std::vector<double>& values) const;
  at::Tensor column(double value) const { return column(std::vector(options_.size(), value)); }
  /// Of [optimizer]; `element` of a list.
  const Column& option(const std::string& name, std::optional<std::size_t> element = std::nullopt) const;
  void read_groups(const Array& array);

  /// What an update goes by: [B, 1], or [B, P] where groups differ; decays undefined where all are 0.
  struct Numbers {
    at::Tensor rates, decays;
    std::optional<double> momentum;  ///< in place of the options'
  };
  Numbers numbers_of(const Array& array, const Rate& rate, std::span<const ParamGroup> groups) const;
  at::Tensor changed(const Array& array, const at::Tensor& own, const std::vector<double>& before,
                     const std::vector<double>& now) const;

  struct Slot {
    std::string name;
    at::Tensor values;  ///< [B, P]
  };

  std::string type_;
  std::vector<Table> options_;
  at::TensorOptions numbers_;
  at::Tensor rates_, decays_;          ///< as Numbers has them
  std::vector<ParamGroup> shown_;      ///< as the plugin that the run file names has them
  std::vector<std::size_t> group_of_;  ///< the number of its group, of each place
  std::vector<Slot> slots_;
  std::vector<std::int64_t> updates_;                           ///< of each member
  mutable std::map<std::string, Column, std::less<>> columns_;  ///< that were asked for
};

/// The optimizers that are fused, sorted.
std::vector<std::string> fused_optimizers();

}  // namespace hfta

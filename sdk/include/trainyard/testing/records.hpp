// Shows records to a rule under test.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/rule.hpp>
#include <trainyard/trial.hpp>

namespace trainyard::testing {

/// A trial of one rule, that grows by a record a call.
class FakeTrial {
 public:
  /// Shows the rule a step with these tensors, by name, if it watches one of them, as the recorder does:
  /// statistics, and values where it asks for them. Returns its finding.
  std::optional<Finding> show(Rule& rule, const std::map<std::string, at::Tensor>& tensors,
                              Mode mode = Mode::train);

  const Trial& trial() const { return trial_; }

 private:
  Trial trial_;
  std::map<Mode, std::int64_t> mode_steps_;
  std::int64_t step_ = 0;
};

}  // namespace trainyard::testing

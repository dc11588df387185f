// A verdict on its way to the loop: all that its action needs, as the rule may be gone by then.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/rule_set.hpp>

namespace trial {

using namespace trainyard;

struct Firing {
  std::string rule;
  std::string mode;
  std::int64_t mode_step = 0;
  Finding finding;
  std::string action;
  double lr_scale = 1.0;
  RuleSwap swap;
  std::string notify;

  /// "exploding_tensor at step 12 of TRAIN: ...".
  std::string text() const;
};

Firing firing_of(const Verdict& verdict);

/// As a checkpoint keeps those whose action is still to come.
std::string text_of(const std::vector<Firing>& firings);
std::vector<Firing> firings_of(const std::string& text);

}  // namespace trial

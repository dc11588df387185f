// recorder/1: takes tensors out of a training, for rules and for later (`[recorder]`). It subscribes to
// events like any hook; the host tells it which rules there are.
#pragma once

#include <string>
#include <vector>

#include <trainyard/context.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/rule_set.hpp>
#include <trainyard/sink.hpp>

namespace trainyard {

class Recorder : public Plugin {
 public:
  static constexpr Kind kind{"recorder", 1};

  /// Called once, before any event. It may write below `run.directory`.
  virtual void open(const RunInfo& run) = 0;

  /// The rules of the run: after `open`, and again, at a safe point, when one was swapped. When it returns,
  /// rules that were attached before and are not among them are called no more. Loop thread.
  virtual void attach(std::vector<NamedRule> rules, const RunScale& scale) = 0;
};

}  // namespace trainyard

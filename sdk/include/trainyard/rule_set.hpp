// Runs rules over the records of a trial, live or afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <trainyard/rule.hpp>

namespace trainyard {

struct NamedRule {
  std::string id;  ///< of its slot: "exploding_tensor"
  Rule* rule = nullptr;
};

/// A rule that fired.
struct Verdict {
  NamedRule rule;
  Finding finding;
  Mode mode = Mode::train;
  std::int64_t mode_step = 0;  ///< -1 where no record came
};

/// One thread at a time. The rules outlive it.
class RuleSet {
 public:
  /// `complain` is told of every rule that throws, with its id and what it said.
  RuleSet(std::vector<Collection> collections,
          std::function<void(const std::string& id, const std::string& message)> complain);

  /// Takes these rules from now on; what was recorded stays. `scale` turns their cadences into steps.
  void attach(const std::vector<NamedRule>& rules, const RunScale& scale);

  /// Shows a record to every rule that it concerns: enabled, not fired yet (or `repeat`), of its modes, at
  /// its cadence, with a tensor that it watches.
  std::vector<Verdict> add(std::shared_ptr<const StepRecord> record);
  std::vector<Verdict> waited(double seconds);

  Trial& trial() { return trial_; }
  /// Evaluations that threw, over all rules.
  std::int64_t errors() const { return errors_; }

 private:
  struct Entry {
    NamedRule named;
    std::vector<Watch> watches;
    std::vector<Mode> modes;
    std::int64_t every = 1, start = 0, end = 0;
    int errors_in_row = 0;
  };
  template <class Look>
  void look(Entry& entry, const StepRecord* at, std::vector<Verdict>& verdicts, Look&& call);
  void fail(Entry& entry, const std::string& message);

  Trial trial_;
  std::vector<Entry> entries_;
  std::function<void(const std::string&, const std::string&)> complain_;
  std::int64_t errors_ = 0;
};

/// Whether a cadence takes a step: start, start + every, ... before end (0: no end).
constexpr bool is_due(std::int64_t step, std::int64_t every, std::int64_t start, std::int64_t end) {
  return step >= start && (end == 0 || step < end) && (step - start) % every == 0;
}

}  // namespace trainyard

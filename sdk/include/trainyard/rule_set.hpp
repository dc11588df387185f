// Runs the rules over the records of a trial, live or afterwards.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/rule.hpp>

TRAINYARD_CONTRACT("rule_set.hpp");

namespace trainyard {

struct NamedRule {
  std::string id;  ///< id of its slot: "exploding_tensor"
  Rule* rule = nullptr;
  /// Runs a call into the rule. The host's says which rule it was where one throws or crashes, and keeps the
  /// rule until the call returns; it does not call a rule that is gone.
  std::function<void(const std::function<void()>&)> within = [](const auto& call) { call(); };
};

/// Says what a rule looks at and when, in steps of its run.
struct RuleCadence {
  std::vector<Watch> watches;
  std::vector<Mode> modes;
  std::int64_t every = 1, start = 0, end = 0;  ///< in training steps; end 0: no end

  /// Returns whether the rule looks at a step. Steps of other modes than training are not thinned out.
  bool due(Mode mode, std::int64_t mode_step) const;
  /// Returns the first training step from `step` on that is due; the largest integer where none is left.
  std::int64_t next(std::int64_t step) const;
};
/// Throws ConfigError, with the option's name, for a length that `scale` cannot turn into steps.
RuleCadence cadence_of(const NamedRule& rule, const RunScale& scale);

/// A rule that fired.
struct Verdict {
  NamedRule rule;
  Finding finding;
  Mode mode = Mode::train;
  std::int64_t mode_step = 0;  ///< -1 where no record came
};

/// Runs rules one at a time, on the thread that shows records. Each has a trial of its own, of the records
/// that were due for it: what others record beside it does not change what it finds, and its window counts
/// its own records. Values that it did not ask for are not kept for it.
class RuleSet {
 public:
  /// `complain` is told of every rule that throws, with its id and what it said; on the thread of the call.
  RuleSet(std::vector<Collection> collections,
          std::function<void(const std::string& id, const std::string& message)> complain);
  ~RuleSet();

  /// Replaces the rules by these; a rule with the id of an earlier one goes on with that one's trial. `scale`
  /// turns cadences into steps. Any thread; waits for a rule that is at work and is not among them. When it
  /// returns, none of those is called any more. One that does not return within a second is left behind, and
  /// its id is returned: what it finds is lost, and the thread that it is in shows the current record to no
  /// more rules.
  std::optional<std::string> attach(const std::vector<NamedRule>& rules, const RunScale& scale);

  /// Shows a record to every rule that it concerns: enabled, not fired yet (or `repeat`), of its modes, at
  /// its cadence, with a tensor that it watches. `fired` is called with each verdict while its rule is still
  /// attached.
  void add(std::shared_ptr<const StepRecord> record, const std::function<void(const Verdict&)>& fired);
  std::vector<Verdict> add(std::shared_ptr<const StepRecord> record);
  /// Keeps a record of a run that goes on for rules to look back at, and shows it to none.
  void remember(const std::shared_ptr<const StepRecord>& record);
  void waited(double seconds, const std::function<void(const Verdict&)>& fired);
  std::vector<Verdict> waited(double seconds);

  /// Forgets the records at and after a step (StepRecord::step).
  void go_back(std::int64_t step);

  /// Returns how many evaluations threw, over all rules.
  std::int64_t errors() const { return errors_; }

 private:
  struct Entry;
  class Work;
  /// The rules that are attached when a record comes. The turn is over when one of them is left behind.
  struct Turn {
    std::vector<std::shared_ptr<Entry>> entries;
    std::int64_t number;
  };
  Turn turn() const;
  template <class Look>
  void look(const Work& work, const StepRecord* at, const std::function<void(const Verdict&)>& fired,
            Look&& call);
  void fail(Entry& entry, const std::string& message);

  const std::vector<Collection> collections_;
  const std::function<void(const std::string&, const std::string&)> complain_;
  std::atomic<std::int64_t> errors_{0};
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<std::shared_ptr<Entry>> entries_;
  const Entry* busy_ = nullptr;
  std::int64_t turns_ = 0;  ///< number of turns that are over
};

}  // namespace trainyard

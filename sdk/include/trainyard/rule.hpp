// rule/1: watches the tensors and metrics of a run, and says when something is wrong with it (`[[rules]]`).
// Rules run beside the training, on a thread of the recorder's: a slow one, or one that throws, does not hold
// up the loop. They run the same way over the files of a run that is over (trainyard rules check RUN).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>
#include <trainyard/trial.hpp>

TRAINYARD_CONTRACT("rule.hpp");

namespace trainyard {

/// Names tensors that a rule needs; the recorder takes them at the rule's cadence.
struct Watch {
  std::string tensors;  ///< a collection, or an expression over names (Trial::tensors)
  bool values = false;  ///< the tensors themselves are needed; else their statistics are enough
};

/// The finding of a rule, with the numbers that show it.
struct Finding {
  std::string message;               ///< "gradient/fc1.weight: mean |g| is 3e-9, below 1e-7"
  std::vector<std::string> tensors;  ///< names, the worst first
  std::vector<std::pair<std::string, double>> evidence;
};

struct RuleSwap {
  std::string slot;
  std::string type;
  std::vector<std::string> set;

  static void describe(Fields<RuleSwap>& m);
};

/// Options that every rule has.
struct RuleCommon {
  bool enabled = true;
  Duration every{500.0, Duration::Unit::steps};
  Duration start{0.0, Duration::Unit::steps};
  std::optional<Duration> end;
  std::string action = "report";
  bool repeat = false;
  double lr_scale = 0.1;
  std::optional<RuleSwap> swap;
  std::string notify;

  static void describe(Fields<RuleCommon>& m);
};

/// After the constructor, all calls that a rule overrides come from the recorder's thread, one at a time.
class Rule : public Plugin {
 public:
  static constexpr Kind kind{"rule", 1};
  using Common = RuleCommon;

  virtual std::vector<Watch> watches() const = 0;
  /// Returns the modes whose steps it looks at; its cadence counts those of training and thins out no others.
  virtual std::vector<Mode> modes() const { return {Mode::train}; }
  /// Returns how many of the records shown to it, of each mode, it looks back at, the newest included.
  virtual std::int64_t window() const { return 1; }

  /// Called with each record of its modes that holds tensors which it watches, in order. An exception is
  /// counted and reported; after several in a row the rule is switched off.
  virtual std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) = 0;

  /// Called about once a second while no record comes, with the seconds since the last one.
  virtual std::optional<Finding> waited(double) { return std::nullopt; }

  /// Write and read what the rule has to know after a resume, or when other options take over: counters,
  /// windows. The name "fired" is taken.
  virtual void remember(StateWriter&) const {}
  virtual void recall(const StateReader&) {}

  // The rest is for the recorder and the host.

  /// Locks the rule for a call; the lock owns nothing while a call that was left behind is still in the rule.
  std::unique_lock<std::mutex> enter() { return {calls_, std::try_to_lock}; }
  /// Writes what publish() stored last; any thread. Checkpoints do not wait for a rule that is at work.
  void save(StateWriter& state) const final;
  void load(const StateReader& state) final;
  /// Passes what was loaded since the last call, if anything, to recall().
  void settle();
  /// Stores what the rule knows now as what `save` writes.
  void publish(bool fired);
  bool fired() const { return fired_; }

  Common common;

 private:
  std::mutex calls_;
  mutable std::mutex mutex_;
  State published_;
  bool loaded_ = false;  ///< published_ was loaded, and settle() has not taken it in yet
  bool fired_ = false;
};

}  // namespace trainyard

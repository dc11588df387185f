// Studies whose trials stop, are compared by what was observed of them at equal intervals, and go on: what ss, modified_ss
// and boss have in common. Every trial is evaluated once an interval, whatever trainer.eval_interval the run file has.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "rounds.hpp"
#include "rungs.hpp"

namespace studies {

class Observed : public Rungs {
 public:
  struct ObservedOptions : RungOptions {
    std::optional<trainyard::Duration> interval;
  };

  template <class Options>
  static void describe_observed(trainyard::Manifest<Options>& m) {
    describe_rungs(m);
    m.option("interval", &Options::interval,
             "from one evaluation to the next, each an observation; 1ep without one, or min_budget where "
             "budgets are no epochs");
  }

  std::optional<trainyard::StudyTrial> next(int /*running*/) override {
    if (given_ == round_.size()) {
      if (waiting_ > 0) return std::nullopt;
      round_ = following();
      given_ = 0;
      if (round_.empty()) return std::nullopt;
      past_.push_back(stage(round_.size(), std::ranges::max(round_, {}, &Stretch::until).until));
      waiting_ = round_.size();
    }
    const Stretch& stretch = round_[given_++];
    return observed(stretch.number, stretch.until);
  }

  std::vector<trainyard::StudyStage> stages() const override {
    std::vector<trainyard::StudyStage> all = past_;
    for (const Stretch& each : left()) all.push_back(stage(each.number, each.until));
    for (std::size_t i = 0; i < all.size(); ++i) all[i].what = "round " + std::to_string(i + 1);
    return all;
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    const auto number = static_cast<std::size_t>(std::stoul(outcome.trial));
    History& history = histories_[number];
    const bool done = outcome.end == trainyard::TrialOutcome::End::done;
    if (done) history.worths = worths(outcome);
    const auto is_finite = [](double value) { return std::isfinite(value); };
    history.fit = done && std::ranges::all_of(history.worths, is_finite);
    Rungs::report(outcome);
  }

 protected:
  /// Returns the next round; nobody: the study is over.
  virtual std::vector<Stretch> following() { return rounds_->next(histories_); }
  /// Returns the rounds to come, as Rounds::left().
  virtual std::vector<Stretch> left() const { return rounds_->left(); }

  /// Returns the numbers 0, 1, ... of so many configurations.
  static std::vector<std::size_t> first(int count) {
    std::vector<std::size_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    return numbers;
  }

  void begin_observed(const ObservedOptions& given, const Resolve& resolve) {
    begin(given, resolve);
    const bool epochs = options().max_budget.unit == trainyard::Duration::Unit::epochs;
    interval_ = given.interval ? *given.interval : epochs ? budget(1) : *options().min_budget;
    for (const trainyard::Duration& each : {*options().min_budget, options().max_budget}) {
      const double count = each.count / interval_.count;
      if (each.unit != interval_.unit || !(interval_.count > 0) || count < 1 - 1e-9 ||
          std::abs(count - std::round(count)) > 1e-9)
        throw trainyard::ConfigError(
            "interval = \"" + interval_.text() + "\" does not go into \"" + each.text() +
            "\": give one, in the same unit, of which min_budget and max_budget are whole multiples");
    }
    resolve(observed(0, 1));
  }

  /// min_budget and max_budget in observations.
  Budgets budgets() const {
    return {observations(*options().min_budget), observations(options().max_budget),
            static_cast<std::size_t>(options().eta)};
  }
  std::size_t observations(const trainyard::Duration& length) const {
    return static_cast<std::size_t>(std::round(length.count / interval_.count));
  }
  const Histories& histories() const { return histories_; }

  trainyard::RandomStream random(std::size_t part = 0) const {
    return {static_cast<std::uint64_t>(options().seed), "study/subsampling", part};
  }

  std::unique_ptr<Rounds> rounds_;  ///< that are under way

 private:
  trainyard::Duration length(std::size_t observations) const {
    return budget(static_cast<double>(observations) * interval_.count);
  }

  trainyard::StudyTrial observed(std::size_t number, std::size_t until) const {
    trainyard::StudyTrial result = trial(number, length(until));
    result.set.push_back("trainer.eval_interval=" + interval_.text());
    return result;
  }

  trainyard::StudyStage stage(std::size_t trials, std::size_t until) const {
    return {"", static_cast<std::int64_t>(trials), {}, length(until)};
  }

  std::vector<double> worths(const trainyard::TrialOutcome& outcome) const {
    const std::size_t expected = observations(*outcome.until);
    if (outcome.curve.size() != expected)
      throw trainyard::ConfigError(
          "trial " + outcome.trial + " has " + std::to_string(outcome.curve.size()) + " values of `" +
          common.metric + "` at " + outcome.until->text() + ", expected " + std::to_string(expected) +
          ", one each " + interval_.text() +
          ": `metric` has to be one of evaluations, like val/loss, and logging.sinks to have jsonl");
    std::vector<double> all;
    for (const double value : outcome.curve) all.push_back(worth(common.goal, value));
    return all;
  }

  void over(std::size_t /*number*/, const Ranked& /*place*/) override { --waiting_; }

  double standing(std::size_t number, double last) const override {
    const std::vector<double>& worths = histories_.at(number).worths;
    if (worths.empty()) return last;
    // worth() of a worth is the value.
    return worth(common.goal, studies::standing(worths, static_cast<std::size_t>(options().eta)));
  }

  std::string standing_text() const override {
    return "the mean of " + common.metric + " over the last part of their way, one of " +
           std::to_string(options().eta);
  }

  trainyard::Duration interval_;
  Histories histories_;
  std::vector<Stretch> round_;
  std::size_t given_ = 0, waiting_ = 0;  ///< of the round
  std::vector<trainyard::StudyStage> past_;
};

}  // namespace studies

// Shows a rule the records of a run, through a RuleSet as the recorder does.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/rule_set.hpp>

#include "tests/support/plugin.hpp"

namespace trainyard::test {

inline constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinite = std::numeric_limits<double>::infinity();

inline TensorRecord raw(std::string name, const at::Tensor& value) {
  return {.name = std::move(name),
          .shape = value.sizes().vec(),
          .statistics = statistics(value),
          .value = value.clone()};
}
/// Without its values.
inline TensorRecord numbers(std::string name, const at::Tensor& value) {
  TensorRecord record = raw(std::move(name), value);
  record.value = at::Tensor();
  return record;
}

struct Shown {
  std::vector<TensorRecord> tensors;
  std::int64_t step = 0;  ///< of the mode
  Mode mode = Mode::train;
  double seconds = 0.0;
};

/// When a rule fired, and what it said.
struct Fired {
  std::size_t record = 0;  ///< index of what was shown
  Finding finding;
};

class RuleRun {
 public:
  /// Looks at every step, and goes on after it fired, unless the options say other.
  RuleRun(std::string name, Table options) : name_(std::move(name)), options_(std::move(options)) {
    if (!options_.contains("every")) options_.set("every", "1ba");
    if (!options_.contains("repeat")) options_.set("repeat", true);
    begin();
  }

  std::optional<Finding> show(const Shown& shown) {
    auto record = std::make_shared<StepRecord>();
    record->mode = shown.mode;
    record->mode_step = shown.step;
    record->step = step_++;
    record->seconds = shown.seconds;
    record->tensors = shown.tensors;
    std::sort(record->tensors.begin(), record->tensors.end(),
              [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
    return only(set_->add(record));
  }
  std::optional<Finding> wait(double seconds) { return only(set_->waited(seconds)); }

  /// In a new object, with the state of the old one and none of the records.
  void resume() {
    const State state = saved();
    begin();
    rule_->load(StateReader(state));
  }
  State saved() const {
    State state{.owner = "rule", .version = {}, .scalars = {}, .tensors = {}};
    StateWriter writer(state);
    rule_->save(writer);
    // A checkpoint keeps the bytes of now.
    for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
    return state;
  }
  Rule& rule() { return *rule_; }
  std::vector<std::string> complaints;

 private:
  void begin() {
    rule_ = make<Rule>(name_, options_);
    set_ = std::make_unique<RuleSet>(
        default_collections(),
        [this](const std::string&, const std::string& said) { complaints.push_back(said); });
    set_->attach({{name_, rule_.get()}}, {.steps_per_epoch = 100, .total_steps = 1000});
  }
  static std::optional<Finding> only(std::vector<Verdict> verdicts) {
    if (verdicts.empty()) return std::nullopt;
    return std::move(verdicts.at(0).finding);
  }

  std::string name_;
  Table options_;
  std::int64_t step_ = 0;
  std::unique_ptr<Rule> rule_;
  std::unique_ptr<RuleSet> set_;
};

/// All times that a rule fires over a run. A run that is resumed after every record fires at the same ones.
inline std::vector<Fired> watch(const std::string& name, const Table& options,
                                const std::vector<Shown>& run) {
  std::vector<std::vector<Fired>> both;
  for (const bool resumed : {false, true}) {
    RuleRun rule(name, options);
    std::vector<Fired>& fired = both.emplace_back();
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (auto finding = rule.show(run[i])) fired.push_back({i, std::move(*finding)});
      if (resumed) rule.resume();
    }
    INFO(name << (rule.complaints.empty() ? "" : ": " + rule.complaints[0]));
    CHECK(rule.complaints.empty());
  }
  REQUIRE(both[0].size() == both[1].size());
  for (std::size_t i = 0; i < both[0].size(); ++i) {
    CHECK(both[0][i].record == both[1][i].record);
    CHECK(both[0][i].finding.message == both[1][i].finding.message);
  }
  return both[0];
}

/// The steps at which a rule fires.
inline std::vector<std::int64_t> steps(const std::string& name, const Table& options,
                                       const std::vector<Shown>& run) {
  std::vector<std::int64_t> found;
  for (const Fired& fired : watch(name, options, run)) found.push_back(run[fired.record].step);
  return found;
}

inline double evidence(const Finding& finding, const std::string& name) {
  for (const auto& [key, value] : finding.evidence)
    if (key == name) return value;
  FAIL("no evidence \"" << name << "\" in: " << finding.message);
  return 0.0;
}

}  // namespace trainyard::test

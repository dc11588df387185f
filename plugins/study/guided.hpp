// Searches whose next configuration depends on what was found, from a point that the file may name: what cfo and
// blendsearch have in common. With several trials at a time, what comes next depends on what is done first; a study that
// goes on after a kill does the same nevertheless.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "knob.hpp"
#include "search.hpp"
#include "space.hpp"
#include "statistics.hpp"

namespace studies {

/// A key, its values, and where the search begins.
struct StartedDimension : Dimension {
  std::optional<double> start;

  static void describe(trainyard::Fields<StartedDimension>& m) {
    Dimension::describe(m);
    m.option(
        "start", &StartedDimension::start,
        "where the search begins, best where trials are short; without one the run file's value, or else the "
        "middle; of choices it is the first");
  }

  /// Returns the knob's value where the search begins. `of_run`: the value in the run file, if it is a number.
  double begin(const std::optional<double>& of_run) const {
    if (!is_range()) {
      const auto found = std::ranges::find(values, start ? *start : of_run.value_or(nan));
      if (start && found == values.end())
        throw trainyard::ConfigError("space: `" + key + "` has start = " + key_text(*start) +
                                     (choices.empty() ? ", which is none of its values"
                                                      : " and choices: the first of them is the start"));
      return found == values.end() ? 0.0 : static_cast<double>(found - values.begin());
    }
    const auto within = [&](double value) { return value >= *low && value <= *high; };
    if (start && !within(*start))
      throw trainyard::ConfigError("space: `" + key + "` has start = " + key_text(*start) +
                                   ", which is not from low to high");
    if (start && integer && *start != std::floor(*start))
      throw trainyard::ConfigError("space: `" + key + "` has start = " + key_text(*start) +
                                   ", and whole numbers only");
    const double from = start ? *start : of_run && within(*of_run) ? *of_run : knob().value(0.5);
    return integer ? std::round(from) : from;
  }
};

/// Returns a number of a resolved run file, of a text the one ahead of its unit; entries of lists go by their index:
/// "metrics.0.k".
inline std::optional<double> number_at(const trainyard::Table& run, std::string_view key,
                                       std::string_view unit = {}) {
  const trainyard::Table* table = &run;
  const trainyard::Value* value = nullptr;
  while (!key.empty()) {
    const std::string_view part = key.substr(0, key.find('.'));
    key.remove_prefix(std::min(key.size(), part.size() + 1));
    const auto* const list = value == nullptr ? nullptr : value->get_if<trainyard::Array>();
    if (list != nullptr) {
      std::size_t index = list->size();
      std::from_chars(part.data(), part.data() + part.size(), index);
      value = index < list->size() ? &(*list)[index] : nullptr;
    } else {
      value = table == nullptr ? nullptr : table->find(part);
    }
    if (value == nullptr) return std::nullopt;
    table = value->get_if<trainyard::Table>();
  }
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = value->get_if<std::int64_t>()) return static_cast<double>(*integer);
  if (const auto* text = value->get_if<std::string>();
      text != nullptr && !unit.empty() && text->ends_with(unit)) {
    double number = 0.0;
    const char* const end = text->data() + text->size() - unit.size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
  }
  const auto* number = value->get_if<double>();
  return number == nullptr ? std::nullopt : std::optional(*number);
}

/// Returns the values that some changes of a run file give the keys of a space; nothing where one is missing.
inline std::optional<Values> values_in(const std::vector<StartedDimension>& space,
                                       std::span<const std::string> changes) {
  Values values;
  for (const StartedDimension& each : space) {
    const auto change = std::ranges::find_if(
        changes, [&](const std::string& one) { return one.starts_with(each.key + "="); });
    const auto value =
        change == changes.end() ? std::nullopt : each.value(change->substr(each.key.size() + 1));
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

inline std::vector<Knob> knobs_of(const std::vector<StartedDimension>& space) {
  std::vector<Knob> knobs;
  knobs.reserve(space.size());
  for (const StartedDimension& each : space) knobs.push_back(each.knob());
  return knobs;
}

/// Returns where the search of a space begins. `plain`: a trial without changes by the space.
inline Values start_of(const std::vector<StartedDimension>& space, const trainyard::StudyTrial& plain,
                       const trainyard::Study::Resolve& resolve) {
  trainyard::Table run;
  try {
    run = resolve(plain);
  } catch (const trainyard::ConfigError&) {  // it may be valid with the keys of the space
  }
  Values start;
  for (const StartedDimension& each : space) start.push_back(each.begin(number_at(run, each.key, each.unit)));
  return start;
}

/// Returns the number that a trial has for a name.
inline std::optional<std::size_t> number_of(const std::string& name) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc{} && end == name.data() + name.size();
  return is_number && number_name(number) == name ? std::optional(number) : std::nullopt;
}

class Guided : public Search {
 public:
  struct GuidedOptions {
    std::vector<StartedDimension> space;
    int trials = 0;
    std::int64_t seed = 0;
    std::optional<trainyard::Duration> budget;
  };

  template <class Options>
  static void describe_guided(trainyard::Manifest<Options>& m) {
    m.option("space", &Options::space, "what is searched: keys, their values, where to begin").required();
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(1)
        .also({"samples", "n", "num_samples"});
    m.option("seed", &Options::seed, "of what is drawn");
    m.option("budget", &Options::budget, "trainer.max_duration; the run file's without one");
  }
  explicit Guided(const GuidedOptions& options) : options_(options) {}

  void open(const Resolve& resolve) override {
    check(options_.space);
    begin({{options_.space.begin(), options_.space.end()}, 1, options_.budget}, {});
    trainyard::StudyTrial plain;
    plain.name = "start";
    plain.run = common.run;
    plain.set = common.set;
    plain.until = options_.budget;
    begin_at(knobs_of(options_.space), start_of(options_.space, plain, resolve),
             static_cast<std::uint64_t>(options_.seed));
  }

  std::vector<trainyard::StudyStage> stages() const override {
    return {{"", options_.trials, {}, options_.budget}};
  }

  std::optional<trainyard::StudyTrial> next(int running) override {
    if (left() <= 0) return std::nullopt;  // others may have tried more
    const std::optional<Values> values = propose(running);
    if (!values) return std::nullopt;
    trainyard::StudyTrial trial = add(point_of(*values));
    tried_.emplace(trial.name, *values);
    return trial;
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    Search::report(outcome);
    learn(tried_.at(outcome.trial), error_of(outcome), outcome);
  }

  std::optional<trainyard::StudyTrial> adopt(const trainyard::StudyTrial& trial,
                                             const trainyard::TrialOutcome& outcome) override {
    const std::optional<std::size_t> number = number_of(trial.name);
    const std::optional<Values> values = values_of(trial);
    if (!number || !values || tried_.contains(trial.name)) return std::nullopt;
    trainyard::StudyTrial own = add(point_of(*values), *number);
    Search::report(outcome);
    tried_.emplace(trial.name, *values);
    know(*values, error_of(outcome), outcome);
    return own;
  }

 protected:
  /// Returns how many configurations may still be tried.
  int left() const { return options_.trials - static_cast<int>(tried_.size()); }

  virtual void begin_at(std::vector<Knob> knobs, Values start, std::uint64_t seed) = 0;
  /// Returns what is tried next. Nothing means what it does of Study::next; such a call changes nothing.
  virtual std::optional<Values> propose(int running) = 0;
  /// Takes the error of what `propose` gave; infinite where the trial failed or diverged.
  virtual void learn(const Values& values, double error, const trainyard::TrialOutcome& outcome) = 0;
  /// Takes the same of what another study tried, before anything is proposed.
  virtual void know(const Values& values, double error, const trainyard::TrialOutcome& outcome) = 0;

 private:
  double error_of(const trainyard::TrialOutcome& outcome) const {
    return -worth(common.goal, value_of(outcome, common.metric));
  }

  Point point_of(const Values& values) const {
    Point point;
    for (std::size_t i = 0; i < values.size(); ++i)
      point.emplace_back(options_.space[i].key, options_.space[i].text(values[i]));
    return point;
  }

  /// Returns the values of a trial of this run file whose changes are those of this study, values of all keys of
  /// the space and nothing else.
  std::optional<Values> values_of(const trainyard::StudyTrial& trial) const {
    const std::size_t own = common.set.size();
    if (trial.run != common.run || trial.until != options_.budget ||
        trial.set.size() != own + options_.space.size() ||
        !std::equal(common.set.begin(), common.set.end(), trial.set.begin()))
      return std::nullopt;
    return values_in(options_.space, std::span(trial.set).subspan(own));
  }

  GuidedOptions options_;
  std::map<std::string, Values> tried_;  ///< by name of the trial
};

}  // namespace studies

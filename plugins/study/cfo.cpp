// Cost-frugal optimization (CFO): Wu, Wang and Huang, "Frugal Optimization for Cost-related Hyperparameters", AAAI 2021.
// It begins at a cheap point and moves by FLOW2 (flow2.hpp) in short steps, so that trials become dearer only where that
// is worth it. Where it has converged it begins anew near the first point. With several trials at a time, who moves
// depends on who is done first; a study that goes on after a kill does the same nevertheless.
#include <map>
#include <optional>

#include <trainyard/study.hpp>

#include "frugal_search.hpp"
#include "search.hpp"

namespace {

using studies::Knob;
using studies::Values;

/// A key, its values, and where the search begins.
struct StartedDimension : studies::Dimension {
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
      const auto found = std::ranges::find(values, start ? *start : of_run.value_or(studies::nan));
      if (start && found == values.end())
        throw trainyard::ConfigError("space: `" + key + "` has start = " + studies::key_text(*start) +
                                     (choices.empty() ? ", which is none of its values"
                                                      : " and choices: the first of them is the start"));
      return found == values.end() ? 0.0 : static_cast<double>(found - values.begin());
    }
    const auto within = [&](double value) { return value >= *low && value <= *high; };
    if (start && !within(*start))
      throw trainyard::ConfigError("space: `" + key + "` has start = " + studies::key_text(*start) +
                                   ", which is not from low to high");
    if (start) return *start;
    return of_run && within(*of_run) ? *of_run : knob().value(0.5);
  }
};

/// Returns a number of a resolved run file.
std::optional<double> number_at(const trainyard::Table& run, const std::string& key) {
  const trainyard::Table* table = &run;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = key.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const trainyard::Value* value = table->find(key.substr(begin, dot - begin));
    if (value == nullptr || value->get_if<trainyard::Table>() == nullptr) return std::nullopt;
    table = value->get_if<trainyard::Table>();
  }
  const trainyard::Value* value = table->find(key.substr(begin));
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = value->get_if<std::int64_t>()) return static_cast<double>(*integer);
  const auto* number = value->get_if<double>();
  return number == nullptr ? std::nullopt : std::optional(*number);
}

}  // namespace

class Cfo final : public studies::Search {
 public:
  struct Options {
    std::vector<StartedDimension> space;
    int trials = 0;
    std::int64_t seed = 0;
    std::optional<trainyard::Duration> budget;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("cfo").version("1.0.0").summary(
        "Local search from a cheap point, by short steps in random directions, each trial in full.");
    m.option("space", &Options::space, "what is searched: keys, their values, where to begin").required();
    m.option("trials", &Options::trials, "how many configurations")
        .required()
        .min(1)
        .also({"samples", "n", "num_samples"});
    m.option("seed", &Options::seed, "of the directions");
    m.option("budget", &Options::budget, "trainer.max_duration; the run file's without one");
  }
  explicit Cfo(const Options& options) : options_(options) {}

  void open(const Resolve& resolve) override {
    studies::check(options_.space);
    begin({{options_.space.begin(), options_.space.end()}, 1, options_.budget}, {});
    const trainyard::Table run =
        resolve({.name = "start", .run = common.run, .set = common.set, .until = options_.budget});
    std::vector<Knob> knobs;
    Values start;
    for (const StartedDimension& each : options_.space) {
      knobs.push_back(each.knob());
      start.push_back(each.begin(number_at(run, each.key)));
    }
    search_.emplace(std::move(knobs), std::move(start), static_cast<std::uint64_t>(options_.seed));
  }

  std::vector<trainyard::StudyStage> stages() const override {
    return {{"", options_.trials, {}, options_.budget}};
  }

  std::optional<trainyard::StudyTrial> next(int running) override {
    if (tried_.size() == static_cast<std::size_t>(options_.trials)) return std::nullopt;
    const std::optional<Values> values = search_->next(running);
    if (!values) return std::nullopt;
    studies::Point point;
    for (std::size_t i = 0; i < values->size(); ++i)
      point.emplace_back(options_.space[i].key, options_.space[i].text((*values)[i]));
    trainyard::StudyTrial trial = add(std::move(point));
    tried_.emplace(trial.name, *values);
    return trial;
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    Search::report(outcome);
    const bool failed = outcome.end == trainyard::TrialOutcome::End::failed;
    const double found =
        failed ? studies::nan : -studies::worth(common.goal, studies::value_of(outcome, common.metric));
    search_->report(tried_.at(outcome.trial), found);
  }

 private:
  Options options_;
  std::optional<studies::FrugalSearch> search_;
  std::map<std::string, Values> tried_;  ///< by name of the trial
};
TRAINYARD_PLUGIN(Cfo)

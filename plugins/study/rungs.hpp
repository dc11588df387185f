// Configurations that are drawn at random and trained in steps, rung by rung, of which the better ones go on: what ASHA
// and Hyperband have in common. A run that goes on resumes from its checkpoint; nothing is trained twice. The schedule
// is that of a run of max_budget throughout (schedule.budget), so that a rung is the beginning of such a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "search.hpp"
#include "space.hpp"
#include "statistics.hpp"

namespace studies {

class Rungs : public trainyard::Study {
 public:
  struct RungOptions {
    std::vector<Dimension> space;
    trainyard::Duration max_budget;
    std::optional<trainyard::Duration> min_budget;
    int eta = 3;
    std::int64_t seed = 0;
  };

  template <class Options>
  static void describe_rungs(trainyard::Manifest<Options>& m) {
    m.option("space", &Options::space, "what is drawn: keys and their ranges or choices").required();
    m.option("max_budget", &Options::max_budget, "what the best are trained for: \"81ep\"").required();
    m.option("min_budget", &Options::min_budget,
             "what each is trained for at least; 1 of the unit of max_budget without");
    m.option("eta", &Options::eta, "one of so many goes on, for so many times as long").range(2, 1000);
    m.option("seed", &Options::seed, "of what is drawn");
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    const auto number = static_cast<std::size_t>(std::stoul(outcome.trial));
    const bool failed = outcome.end == trainyard::TrialOutcome::End::failed;
    const double value = value_of(outcome, common.metric);
    results_[number].push_back({outcome, value, failed});
    over(number, Ranked{worth(common.goal, value), number, !failed && !std::isnan(value)});
  }

  trainyard::StudyResult result() const override {
    trainyard::StudyResult result;
    std::vector<std::size_t> order;
    for (const auto& [number, results] : results_) order.push_back(number);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
    result.tables.push_back(table(order));
    result.tables.push_back(rungs());
    std::vector<Point> points;
    std::vector<Interval> found;
    for (const std::size_t number : order) {
      points.push_back(point(number));
      const Result* last = furthest(number);
      found.push_back({last == nullptr ? nan : last->value, nan});
    }
    result.plots.push_back(curves(order));
    for (trainyard::ResultPlot& plot : scatter(options_.space, points, found, common.metric))
      result.plots.push_back(std::move(plot));
    trainyard::StudyBest best{"", trial(order.front(), options_.max_budget)};
    result.best.push_back(std::move(best));
    return result;
  }

 protected:
  /// What a trial came to at a rung; those of the same worth in the order of their numbers.
  struct Ranked {
    double worth = 0.0;
    std::size_t number = 0;
    bool fit = false;  ///< to go on: what failed or diverged is not
    bool before(const Ranked& other) const {
      return worth != other.worth ? worth > other.worth : number < other.number;
    }
  };

  /// The best `count` of them that are fit.
  static std::vector<Ranked> top(std::vector<Ranked> places, std::size_t count) {
    std::ranges::sort(places, [](const Ranked& a, const Ranked& b) { return a.before(b); });
    places.resize(std::min(count, places.size()));
    std::erase_if(places, [](const Ranked& place) { return !place.fit; });
    return places;
  }

  /// A trial came to its rung.
  virtual void over(std::size_t number, const Ranked& place) = 0;

  void begin(const RungOptions& options, const Resolve& resolve) {
    options_ = options;
    check(options_.space);
    using Unit = trainyard::Duration::Unit;
    const Unit unit = options_.max_budget.unit;
    if (unit == Unit::percent || unit == Unit::seconds)
      throw trainyard::ConfigError(
          "max_budget = \"" + options_.max_budget.text() +
          "\" cannot be trained in steps: give epochs (ep), steps (ba), samples (sp) or tokens (tok)");
    if (!options_.min_budget) options_.min_budget = trainyard::Duration{1, unit};
    if (!(options_.min_budget->count > 0))
      throw trainyard::ConfigError("min_budget = \"" + options_.min_budget->text() +
                                   "\" is nothing: give more than 0");
    if (options_.min_budget->unit != unit || options_.min_budget->count > options_.max_budget.count)
      throw trainyard::ConfigError("min_budget = \"" + options_.min_budget->text() +
                                   "\" and max_budget = \"" + options_.max_budget.text() +
                                   "\": give both in the same unit, the smaller one first");
    resolve(trial(0, options_.max_budget));
  }

  const RungOptions& options() const { return options_; }

  /// floor(log_eta(max_budget / min_budget)), in whole numbers as far as they go.
  int halvings() const {
    int count = 0;
    double budget = options_.min_budget->count * options_.eta;
    while (budget <= options_.max_budget.count * (1 + 1e-12)) {
      budget *= options_.eta;
      ++count;
    }
    return count;
  }

  /// A share of the epochs, whole steps, samples or tokens.
  trainyard::Duration budget(double count) const {
    const auto unit = options_.max_budget.unit;
    return {unit == trainyard::Duration::Unit::epochs ? count : std::max(1.0, std::round(count)), unit};
  }

  /// What a configuration has: drawn, where the study does not choose it.
  virtual Point point(std::size_t number) const {
    return draw(options_.space, static_cast<std::uint64_t>(options_.seed), number);
  }

  trainyard::StudyTrial trial(std::size_t number, const trainyard::Duration& until) const {
    trainyard::StudyTrial trial = unchanged(number, until);
    for (std::string& change : changes(point(number))) trial.set.push_back(std::move(change));
    return trial;
  }

  /// The same without what its point changes of the run file.
  trainyard::StudyTrial unchanged(std::size_t number, const trainyard::Duration& until) const {
    trainyard::StudyTrial trial{.name = number_name(number),
                                .run = common.run,
                                .set = {"schedule.budget=" + options_.max_budget.text()},
                                .until = until,
                                .labels = point(number),
                                .panel = common.metric,
                                .series = number_name(number)};
    trial.set.insert(trial.set.end(), common.set.begin(), common.set.end());
    return trial;
  }

  /// What a configuration is ranked by among those that were trained as far; `last` is what it came to at last.
  virtual double standing(std::size_t /*number*/, double last) const { return last; }

  virtual std::string standing_text() const { return common.metric + " there"; }

  /// What tables call the part of the study that a trial belongs to; empty: there is one only.
  virtual std::string group(std::size_t /*number*/) const { return ""; }

 private:
  struct Result {
    trainyard::TrialOutcome outcome;
    double value;
    bool failed;
  };

  /// The last that is something.
  const Result* furthest(std::size_t number) const {
    const std::vector<Result>& results = results_.at(number);
    for (auto each = results.rbegin(); each != results.rend(); ++each)
      if (!each->failed && !std::isnan(each->value)) return &*each;
    return nullptr;
  }

  /// Further is better, then more.
  std::pair<double, double> rank(std::size_t number) const {
    const Result* last = furthest(number);
    return last == nullptr
               ? std::pair(-1.0, 0.0)
               : std::pair(last->outcome.until->count, worth(common.goal, standing(number, last->value)));
  }

  trainyard::ResultTable table(const std::vector<std::size_t>& order) const {
    trainyard::ResultTable table{.title = std::to_string(order.size()) +
                                          " configurations by how far they came, then by " + standing_text(),
                                 .columns = {"trial"},
                                 .rows = {}};
    for (std::string& key : short_keys(options_.space)) table.columns.push_back(std::move(key));
    table.columns.emplace_back("trained");
    table.columns.push_back(common.metric);
    table.columns.insert(table.columns.end(), common.also.begin(), common.also.end());
    for (const std::size_t number : order) {
      const Result* last = furthest(number);
      const Result& shown = last == nullptr ? results_.at(number).back() : *last;
      std::vector<trainyard::ResultCell> row{{number_name(number), {}, {}}};
      for (const auto& [key, value] : point(number)) row.push_back({value, {}, {}});
      row.push_back({shown.outcome.until->text(), shown.outcome.until->count, {}});
      row.push_back(last != nullptr ? cell({shown.value, nan})
                                    : trainyard::ResultCell{shown.failed ? "failed" : "diverged", {}, {}});
      for (const std::string& metric : common.also)
        row.push_back(cell({value_of(shown.outcome, metric), nan}));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  trainyard::ResultTable rungs() const {
    struct Rung {
      std::int64_t trials = 0, unfit = 0;
      double best = nan;
    };
    std::map<std::pair<std::string, double>, Rung> rungs;
    for (const auto& [number, results] : results_)
      for (const Result& each : results) {
        Rung& rung = rungs[{group(number), each.outcome.until->count}];
        ++rung.trials;
        rung.unfit += each.failed || std::isnan(each.value);
        if (std::isnan(rung.best) || worth(common.goal, each.value) > worth(common.goal, rung.best))
          rung.best = each.value;
      }
    trainyard::ResultTable table{
        .title = "Rungs",
        .columns = {"trained", "trials", "failed or diverged", "best " + common.metric},
        .rows = {}};
    const bool groups = !rungs.empty() && !rungs.begin()->first.first.empty();
    if (groups) table.columns.insert(table.columns.begin(), "bracket");
    for (const auto& [key, rung] : rungs) {
      table.rows.push_back(
          {{trainyard::Duration{key.second, options_.max_budget.unit}.text(), key.second, {}},
           {std::to_string(rung.trials), static_cast<double>(rung.trials), {}},
           {std::to_string(rung.unfit), static_cast<double>(rung.unfit), {}},
           cell({rung.best, nan})});
      if (groups)
        table.rows.back().insert(table.rows.back().begin(), trainyard::ResultCell{key.first, {}, {}});
    }
    return table;
  }

  trainyard::ResultPlot curves(const std::vector<std::size_t>& order) const {
    trainyard::ResultPlot plot{.title = common.metric + " at each rung",
                               .x_label = "trained, " + options_.max_budget.text().substr(
                                                            key_text(options_.max_budget.count).size()),
                               .y_label = common.metric,
                               .places = {},
                               .log_x = true,
                               .series = {}};
    for (const std::size_t number : order) {
      trainyard::ResultPlot::Series series{.name = number == order.front() ? number_name(number) : "",
                                           .points = {},
                                           .bold = number == order.front()};
      for (const Result& each : results_.at(number))
        series.points.push_back({each.outcome.until->count, each.value, 0.0});
      plot.series.push_back(std::move(series));
    }
    return plot;
  }

  RungOptions options_;
  std::map<std::size_t, std::vector<Result>> results_;  ///< by the trial's number, in the order of its rungs
};

}  // namespace studies

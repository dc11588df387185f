// Points of a space, each tried in full over some seeds: what grid and random search have in common.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "space.hpp"
#include "statistics.hpp"

namespace studies {

/// "0007": sorts as the number does.
inline std::string number_name(std::size_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%04zu", number);
  return text;
}

/// How metrics of what was tried go with the values of each key that is a number.
inline std::vector<trainyard::ResultPlot> scatter(const std::vector<Dimension>& space,
                                                  const std::vector<Point>& points,
                                                  const std::vector<Interval>& found,
                                                  const std::string& metric) {
  std::vector<trainyard::ResultPlot> plots;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const Dimension& key = space[i];
    trainyard::ResultPlot plot{.title = metric + " by " + key.key,
                               .x_label = key.key,
                               .y_label = metric,
                               .places = key.choices,
                               .log_x = key.log,
                               .series = {{.name = "", .points = {}, .bold = false, .joined = false}}};
    for (std::size_t point = 0; point < points.size(); ++point) {
      const std::string& value = points[point][i].second;
      const auto place = std::ranges::find(key.choices, value) - key.choices.begin();
      const double x = key.choices.empty() ? std::stod(value) : static_cast<double>(place);
      plot.series.front().points.push_back(
          {x, found[point].mean, std::isfinite(found[point].half) ? found[point].half : 0.0});
    }
    plots.push_back(std::move(plot));
  }
  return plots;
}

class Search : public trainyard::Study {
 public:
  struct SearchOptions {
    std::vector<Dimension> space;
    int seeds = 1;
    std::optional<trainyard::Duration> budget;
  };

  std::vector<trainyard::StudyStage> stages() const override {
    return {{"", static_cast<std::int64_t>(points_.size()) * search_.seeds, {}, search_.budget}};
  }

  std::optional<trainyard::StudyTrial> next(int /*running*/) override {
    const auto seeds = static_cast<std::size_t>(search_.seeds);
    if (given_ == points_.size() * seeds) return std::nullopt;
    const std::size_t number = given_++;
    return trial(number / seeds, static_cast<int>(number % seeds));
  }

  void report(const trainyard::TrialOutcome& outcome) override { outcomes_[outcome.trial] = outcome; }

  trainyard::StudyResult result() const override {
    trainyard::StudyResult result;
    std::vector<Interval> found;
    std::vector<double> worths;
    for (std::size_t point = 0; point < points_.size(); ++point) {
      const std::vector<double> values = values_of(point, common.metric);
      found.push_back(interval(values));
      const double worst = -std::numeric_limits<double>::infinity();
      worths.push_back(values.empty() ? worst : worth(common.goal, found.back().mean));
    }
    std::vector<std::size_t> order(points_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return worths[a] > worths[b]; });
    result.tables.push_back(table(order));
    result.plots = scatter(search_.space, points_, found, common.metric);
    result.best.push_back({"", trial(order.front(), 0)});
    return result;
  }

 protected:
  void begin(SearchOptions options, std::vector<Point> points) {
    search_ = std::move(options);
    points_ = std::move(points);
    numbers_.resize(points_.size());
    std::iota(numbers_.begin(), numbers_.end(), std::size_t{0});
  }

  /// Adds a point, and returns its trial: of a search that does not know its points beforehand.
  trainyard::StudyTrial add(Point point) {
    return add(std::move(point), numbers_.empty() ? 0 : *std::ranges::max_element(numbers_) + 1);
  }
  trainyard::StudyTrial add(Point point, std::size_t number) {
    points_.push_back(std::move(point));
    numbers_.push_back(number);
    return trial(given_++, 0);
  }

 private:
  trainyard::StudyTrial trial(std::size_t point, int seed) const {
    trainyard::StudyTrial trial{.name = number_name(numbers_[point]),
                                .run = common.run,
                                .set = common.set,
                                .until = search_.budget,
                                .labels = points_[point],
                                .panel = common.metric,
                                .series = number_name(numbers_[point])};
    for (std::string& change : changes(points_[point])) trial.set.push_back(std::move(change));
    if (search_.seeds == 1) return trial;
    trial.name += "/seed " + std::to_string(seed);
    trial.set.push_back("run.seed=" + std::to_string(seed));
    trial.labels.emplace_back("seed", std::to_string(seed));
    return trial;
  }

  /// Of the seeds that did not fail.
  std::vector<double> values_of(std::size_t point, const std::string& metric) const {
    std::vector<double> values;
    for (int seed = 0; seed < search_.seeds; ++seed)
      if (const auto found = outcomes_.find(trial(point, seed).name);
          found != outcomes_.end() && found->second.end != trainyard::TrialOutcome::End::failed)
        values.push_back(value_of(found->second, metric));
    return values;
  }

  trainyard::ResultCell shown(std::size_t point, const std::string& metric) const {
    const std::vector<double> values = values_of(point, metric);
    if (values.empty()) return {"failed", {}, {}};
    const Interval of = interval(values);
    return std::isnan(of.mean) ? trainyard::ResultCell{"diverged", {}, {}} : cell(of);
  }

  trainyard::ResultTable table(const std::vector<std::size_t>& order) const {
    trainyard::ResultTable table{
        .title = std::to_string(points_.size()) + " configurations by " + common.metric + ", the best first" +
                 (search_.seeds > 1
                      ? "; mean over " + std::to_string(search_.seeds) + " seeds with its 95 % interval"
                      : ""),
        .columns = {"trial"},
        .rows = {}};
    for (std::string& key : short_keys(search_.space)) table.columns.push_back(std::move(key));
    table.columns.push_back(common.metric);
    table.columns.insert(table.columns.end(), common.also.begin(), common.also.end());
    for (const std::size_t point : order) {
      std::vector<trainyard::ResultCell> row{{number_name(numbers_[point]), {}, {}}};
      for (const auto& [key, value] : points_[point]) row.push_back({value, {}, {}});
      row.push_back(shown(point, common.metric));
      for (const std::string& metric : common.also) row.push_back(shown(point, metric));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  SearchOptions search_;
  std::vector<Point> points_;
  std::vector<std::size_t> numbers_;  ///< by which the points' trials are named
  std::size_t given_ = 0;
  std::map<std::string, trainyard::TrialOutcome> outcomes_;
};

}  // namespace studies

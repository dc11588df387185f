#include "core/report/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/runfile/print.hpp"

namespace trainyard::report {
namespace {

using Keys = std::map<std::string, std::string>;

constexpr std::array own_keys = {"run.name", "run.output_dir"};

Keys keys_of(const RunData& run) {
  Keys keys;
  for (config::Difference& each : config::diff(run.config, Table()))
    keys.emplace(std::move(each.key), std::move(each.a));
  for (const char* own : own_keys) keys.erase(own);
  return keys;
}

/// Returns the common prefix of the names, without a trailing hyphen (or other separator), "seed" or "s".
std::string common_beginning(const std::vector<std::string>& names) {
  std::string common = names.front();
  for (const std::string& name : names) {
    const auto [end, ignored] = std::mismatch(common.begin(), common.end(), name.begin(), name.end());
    common.erase(end, common.end());
  }
  for (const std::string_view tail : {"seed", "s"})
    for (const char* before : {"-", "_", ".", "/"})
      if (common.ends_with(before + std::string(tail))) common.resize(common.size() - tail.size() - 1);
  while (!common.empty() && std::string_view("-_./ ").find(common.back()) != std::string_view::npos)
    common.pop_back();
  return common;
}

/// Says whether low values are better: by `mode` in the run file, else by the name of the metric.
std::optional<bool> lower_is_better(const std::string& metric, const std::vector<RunData>& runs) {
  const bool judged =
      metric.starts_with("val/") || metric.starts_with("test/") || metric.starts_with("train/");
  if (!judged) return std::nullopt;
  for (const RunData& run : runs) {
    const Keys keys = keys_of(run);
    for (const std::string table : {"checkpoint.keep_best.", "early_stopping."}) {
      const auto found = keys.find(table + "metric"), mode = keys.find(table + "mode");
      if (found != keys.end() && mode != keys.end() && found->second == '"' + metric + '"')
        return mode->second == "\"min\"";
    }
  }
  constexpr std::array lower = {"loss", "perplexity", "bits", "mae", "mse", "rmse", "error"};
  const std::string name = metric.substr(metric.find('/') + 1);
  return std::any_of(lower.begin(), lower.end(), [&](const char* each) {
    return name == each || name.ends_with(std::string("_") + each) ||
           name.starts_with(each + std::string("_"));
  });
}

Outcome outcome_of(const Curve& curve, std::optional<bool> lower) {
  Outcome outcome{.last = curve.back(), .best = std::nullopt};
  if (!lower) return outcome;
  for (const Point& point : curve)
    if (std::isfinite(point.value) &&
        (!outcome.best || (*lower ? point.value < outcome.best->value : point.value > outcome.best->value)))
      outcome.best = point;
  return outcome;
}

}  // namespace

std::vector<std::string> labels_of(const std::vector<RunData>& runs) {
  std::map<std::string, int> uses;
  for (const RunData& run : runs) ++uses[run.name];
  std::vector<std::string> labels;
  for (const RunData& run : runs)
    labels.push_back(uses[run.name] > 1 ? run.name + " (" + run.path + ")" : run.name);
  return labels;
}

std::vector<Group> groups_of(const std::vector<RunData>& runs) {
  std::vector<std::pair<Keys, Group>> found;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Keys keys = keys_of(runs[i]);
    keys.erase("run.seed");
    auto same =
        std::find_if(found.begin(), found.end(), [&](const auto& each) { return each.first == keys; });
    if (same == found.end()) same = found.insert(found.end(), {std::move(keys), {}});
    same->second.runs.push_back(i);
  }
  const std::vector<std::string> labels = labels_of(runs);
  std::vector<Group> groups;
  for (auto& [keys, group] : found) {
    std::vector<std::string> names;
    for (const std::size_t run : group.runs) names.push_back(labels[run]);
    const std::string common = names.size() > 1 ? common_beginning(names) : std::string();
    group.label = common.empty() ? names.front() : common;
    if (names.size() > 1) group.label += " (" + std::to_string(names.size()) + " seeds)";
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<DifferingKey> differing_keys(const std::vector<RunData>& runs) {
  std::vector<Keys> of_run;
  std::set<std::string> all;
  for (const RunData& run : runs) {
    of_run.push_back(keys_of(run));
    for (const auto& [key, value] : of_run.back()) all.insert(key);
  }
  std::vector<DifferingKey> differing;
  for (const std::string& key : all) {
    std::vector<std::string> values;
    for (const Keys& keys : of_run) {
      const auto found = keys.find(key);
      values.push_back(found == keys.end() ? std::string() : found->second);
    }
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end())
      differing.push_back({key, std::move(values)});
  }
  return differing;
}

std::vector<std::string> metrics_of(const std::vector<RunData>& runs) {
  const auto place = [](const std::string& metric) {
    constexpr std::array order = {"val/", "test/", "train/", "lr", "gradient_norm"};
    const auto found =
        std::find_if(order.begin(), order.end(), [&](const char* each) { return metric.starts_with(each); });
    const bool last = metric == "samples_per_second";
    return std::pair(last ? order.size() + 1 : static_cast<std::size_t>(found - order.begin()), metric);
  };
  std::set<std::pair<std::size_t, std::string>> sorted;
  for (const RunData& run : runs)
    for (const auto& [metric, curve] : run.curves) sorted.insert(place(metric));
  std::vector<std::string> metrics;
  for (const auto& [order, metric] : sorted) metrics.push_back(metric);
  return metrics;
}

std::vector<MetricOutcomes> outcomes_of(const std::vector<RunData>& runs) {
  std::vector<MetricOutcomes> all;
  for (const std::string& metric : metrics_of(runs)) {
    MetricOutcomes outcomes{.metric = metric, .lower_is_better = lower_is_better(metric, runs), .of_run = {}};
    for (const RunData& run : runs) {
      const auto found = run.curves.find(metric);
      if (found == run.curves.end())
        outcomes.of_run.emplace_back();
      else
        outcomes.of_run.emplace_back(outcome_of(found->second, outcomes.lower_is_better));
    }
    all.push_back(std::move(outcomes));
  }
  return all;
}

}  // namespace trainyard::report

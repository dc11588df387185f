// Strategies held against each other in several settings, each tuned in each, over several seeds. What is tuned is
// chosen by runs of a run file of its own, with seeds of their own; only what was chosen is run again and reported.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <variant>

#include <trainyard/study.hpp>

#include "space.hpp"
#include "statistics.hpp"

namespace {

using trainyard::ConfigError;
using trainyard::Duration;
using trainyard::StudyTrial;
using trainyard::Table;
using trainyard::Value;

struct Strategy {
  std::string name;
  std::vector<std::string> set;
  static void describe(trainyard::Fields<Strategy>& m) {
    m.option("name", &Strategy::name, "what tables call it").required();
    m.option("set", &Strategy::set, "changes of the run file, as after --set; none: as it is");
  }
};

struct Setting {
  std::string name, run, tune_run;
  std::vector<std::string> set, tune;
  std::vector<Duration> budgets;
  static void describe(trainyard::Fields<Setting>& m) {
    m.option("name", &Setting::name, "what tables call it").required();
    m.option("run", &Setting::run, "run file; that of the study without one").file();
    m.option("set", &Setting::set, "changes of it, as after --set");
    m.option("tune", &Setting::tune,
             "changes of which each strategy takes the best; those of the study without any");
    m.option("tune_run", &Setting::tune_run,
             "run file by which it is chosen; evaluates on data that `run` does not")
        .file();
    m.option("budgets", &Setting::budgets, "values of trainer.max_duration; those of the study without any");
  }
};

/// A setting with one of its budgets, if it has some.
struct Cell {
  const Setting* setting;
  std::optional<Duration> budget;
  std::string name() const { return setting->name + (budget ? ", " + budget->text() : ""); }
};

bool same(const Value& a, const Value& b);

bool same(const Table& a, const Table& b) {
  return a.entries().size() == b.entries().size() &&
         std::ranges::all_of(a.entries(), [&](const Table::Entry& entry) {
           const Value* other = b.find(entry.key);
           return other != nullptr && same(entry.value, *other);
         });
}

bool same(const Value& a, const Value& b) {
  if (a.data().index() != b.data().index()) return false;
  if (const Table* table = a.get_if<Table>()) return same(*table, b.as<Table>());
  if (const auto* array = a.get_if<trainyard::Array>()) {
    const auto& other = b.as<trainyard::Array>();
    return std::ranges::equal(*array, other, [](const Value& x, const Value& y) { return same(x, y); });
  }
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Table> || std::is_same_v<T, trainyard::Array>)
          return false;  // handled above
        else
          return x == b.as<T>();
      },
      a.data());
}

/// The [data] of a split as a whole, and the part of it that is taken.
struct Split {
  Table which;
  std::array<double, 2> fraction{0.0, 1.0};

  Split(const Table& data, const Table& split) : which(data) {
    for (const Table::Entry& entry : split.entries()) which.set(entry.key, entry.value);
    if (const Value* given = which.find("fraction"))
      for (std::size_t i = 0; i < 2; ++i) fraction[i] = given->as<trainyard::Array>().at(i).as<double>();
    for (const char* how : {"fraction", "batch_size", "micro_batch_size", "accumulation", "shuffle",
                            "drop_last", "workers", "prefetch"})
      which.erase(how);  // how samples are loaded, not which
  }

  bool shares_with(const Split& other) const {
    return same(which, other.which) && fraction[0] < other.fraction[1] && other.fraction[0] < fraction[1];
  }
};

/// "rex+0.01" of "rex, 0.01": folders are named after trials, and are typed.
std::string without_blanks(std::string name) {
  for (std::size_t at; (at = name.find(", ")) != std::string::npos;) name.replace(at, 2, "+");
  std::ranges::replace(name, ' ', '_');
  return name;
}

template <class Named>
void refuse_equal(const std::vector<Named>& all, const char* what) {
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (without_blanks(all[i].name) == without_blanks(all[j].name))
        throw ConfigError(
            "two " + std::string(what) + " are called \"" + all[j].name + "\"" +
            (all[i].name == all[j].name ? "" : " and \"" + all[i].name + "\", which are one folder") +
            ": give one another name");
}

/// "lr=0.1" of "optimizer.lr=0.1".
std::string short_text(const std::string& change) {
  const std::size_t dot = change.substr(0, change.find('=')).rfind('.');
  return dot == std::string::npos ? change : change.substr(dot + 1);
}

class Compare final : public trainyard::Study {
 public:
  struct Options {
    std::vector<Strategy> compare;
    std::vector<studies::Axis> axes;
    std::string against;
    int seeds = 5;
    std::vector<Setting> settings;
    std::vector<std::string> tune;
    std::string tune_run;
    std::vector<Duration> budgets;
    bool quick = false;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("compare").version("1.0.0").summary(
        "Strategies held against each other, each tuned alike, over seeds: tables of means and of paired "
        "differences.");
    m.option("compare", &Options::compare, "the strategies");
    m.option("axes", &Options::axes,
             "keys and their values: each strategy is tried with each combination of them");
    m.option(
        "against", &Options::against,
        "the strategy that paired differences are of; the first without it. Of several axes: \"rex, 64\"");
    m.option("seeds", &Options::seeds, "runs of each").min(1);
    m.option("settings", &Options::settings,
             "where they are compared; the study's run file as it is without any");
    m.option("tune", &Options::tune,
             "changes of which each strategy takes the best in each setting and budget");
    m.option("tune_run", &Options::tune_run,
             "run file by which it is chosen; evaluates on data that `run` does not")
        .file();
    m.option("budgets", &Options::budgets, "values of trainer.max_duration; without any, the run file's");
    m.option("quick", &Options::quick,
             "one seed, setting and budget of 20 steps: to see that the study works");
  }
  explicit Compare(const Options& options) : options_(options) {}

  void open(const Resolve& resolve) override {
    make_settings();
    make_strategies();
    check(resolve);
    if (options_.quick) shorten();
    for (const Setting& setting : settings_) {
      if (setting.budgets.empty()) cells_.push_back({&setting, std::nullopt});
      for (const Duration& budget : setting.budgets) cells_.push_back({&setting, budget});
    }
    make_tuning();
    if (waiting_for_ == 0) make_reported();
  }

  std::vector<trainyard::StudyStage> stages() const override {
    std::vector<trainyard::StudyStage> all;
    for (const Cell& cell : cells_) {
      const auto each = static_cast<std::int64_t>(strategies_.size()) * options_.seeds;
      const auto values = static_cast<std::int64_t>(cell.setting->tune.size());
      if (values > 1) all.push_back({"tuning: " + cell.name(), each * values, {}, cell.budget});
      all.push_back({cell.name(), each, {}, cell.budget});
    }
    return all;
  }

  std::optional<StudyTrial> next(int /*running*/) override {
    if (given_ == trials_.size()) return std::nullopt;
    return trials_[given_++];
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    outcomes_[outcome.trial] = outcome;
    if (waiting_for_ > 0 && --waiting_for_ == 0) make_reported();
  }

  trainyard::StudyResult result() const override {
    trainyard::StudyResult result;
    std::vector<std::string> metrics{common.metric};
    metrics.insert(metrics.end(), common.also.begin(), common.also.end());
    for (const std::string& metric : metrics) add_tables(metric, result.tables);
    result.plots.push_back(plot());
    const std::vector<std::size_t> best = this->best();
    for (std::size_t cell = 0; cell < cells_.size(); ++cell)
      result.best.push_back(
          {cells_.size() == 1 ? "" : cells_[cell].name(),
           trial("report", cells_[cell], strategies_[best[cell]], chosen_.at({cell, best[cell]}), 0)});
    return result;
  }

 private:
  void make_settings() {
    settings_ = options_.settings;
    if (settings_.empty()) {
      const std::string file = common.run.substr(common.run.rfind('/') + 1);
      settings_.push_back({.name = file.substr(0, file.rfind('.')),
                           .run = "",
                           .tune_run = "",
                           .set = {},
                           .tune = {},
                           .budgets = {}});
    }
    refuse_equal(settings_, "settings");
    for (Setting& setting : settings_) {
      if (setting.run.empty()) setting.run = common.run;
      if (setting.tune_run.empty()) setting.tune_run = options_.tune_run;
      if (setting.tune.empty()) setting.tune = options_.tune;
      if (setting.budgets.empty()) setting.budgets = options_.budgets;
      if (setting.tune.size() > 1 && setting.tune_run.empty())
        throw ConfigError(
            "setting \"" + setting.name + "\" has " + std::to_string(setting.tune.size()) +
            " values to choose from and no `tune_run`: name a run file that evaluates on other data, a "
            "part of the training data that it does not train on");
    }
  }

  void make_strategies() {
    strategies_ = options_.compare;
    if (strategies_.empty() && options_.axes.empty())
      throw ConfigError("there is nothing to compare: say `compare` or `axes` in [study]");
    if (strategies_.empty()) strategies_.push_back({});
    for (const studies::Axis& axis : options_.axes) {
      std::vector<Strategy> all;
      for (const Strategy& strategy : strategies_)
        for (const std::string& value : axis.texts()) {
          Strategy each = strategy;
          each.name += (each.name.empty() ? "" : ", ") + value;
          each.set.push_back(axis.key + "=" + value);
          all.push_back(std::move(each));
        }
      strategies_ = std::move(all);
    }
    std::string names;
    for (const Strategy& strategy : strategies_) names += (names.empty() ? "" : ", ") + strategy.name;
    refuse_equal(strategies_, "strategies");
    if (options_.against.empty()) options_.against = strategies_.front().name;
    if (std::ranges::find(strategies_, options_.against, &Strategy::name) == strategies_.end())
      throw ConfigError("`against` is \"" + options_.against + "\", and what is compared: " + names);
  }

  /// Every combination is a valid run; what values are chosen by is neither what is reported nor what was trained on.
  void check(const Resolve& resolve) const {
    for (const Setting& setting : settings_) {
      const Cell cell{&setting,
                      setting.budgets.empty() ? std::nullopt : std::optional(setting.budgets.front())};
      const std::vector<std::string> values =
          setting.tune.empty() ? std::vector<std::string>{""} : setting.tune;
      for (const Strategy& strategy : strategies_)
        for (const std::string& tuned : values)
          for (const char* part : {"report", "tune"})
            if (part[0] == 'r' || !setting.tune_run.empty()) resolve(trial(part, cell, strategy, tuned, 0));
      if (setting.tune_run.empty()) continue;
      const auto against = std::ranges::find(strategies_, options_.against, &Strategy::name);
      const Table tune = resolve(trial("tune", cell, *against, values.front(), 0)).find("data")->as<Table>();
      const Table report =
          resolve(trial("report", cell, *against, values.front(), 0)).find("data")->as<Table>();
      refuse_shared(setting, "`run` evaluates on", tune, report.find("val"));
      refuse_shared(setting, "it trains on", tune, tune.find("train"));
    }
  }

  static void refuse_shared(const Setting& setting, const char* what, const Table& tune, const Value* split) {
    const Value* const chosen_by = tune.find("val");
    if (chosen_by == nullptr || split == nullptr) return;
    if (Split(tune, chosen_by->as<Table>()).shares_with(Split(tune, split->as<Table>())))
      throw ConfigError("setting \"" + setting.name + "\": " + setting.tune_run +
                        " evaluates on samples that " + what +
                        "; give data.val another file, or a fraction that does not overlap");
  }

  /// One seed, one setting, two strategies beside that which others are held against, two values, 20 steps.
  void shorten() {
    options_.seeds = 1;
    std::vector<Strategy> few{*std::ranges::find(strategies_, options_.against, &Strategy::name)};
    for (std::size_t i = 0; i < 2 && i < strategies_.size(); ++i)
      if (strategies_[i].name != options_.against) few.push_back(strategies_[i]);
    strategies_ = std::move(few);
    settings_.resize(1);
    settings_.front().tune.resize(std::min<std::size_t>(2, settings_.front().tune.size()));
    settings_.front().budgets = {Duration{20, Duration::Unit::steps}};
  }

  StudyTrial trial(const std::string& part, const Cell& cell, const Strategy& strategy,
                   const std::string& tuned, int seed) const {
    const Setting& setting = *cell.setting;
    const bool tunes = part == "tune";
    StudyTrial trial{
        .name = without_blanks(part + "/" + setting.name + (cell.budget ? "/" + cell.budget->text() : "") +
                               "/" + strategy.name + (tunes ? "/" + short_text(tuned) : "") + "/seed" +
                               std::to_string(seed)),
        .run = tunes ? setting.tune_run : setting.run,
        .set = common.set,
        .until = cell.budget,
        .labels = {{"part", part},
                   {"setting", setting.name},
                   {"budget", cell.budget ? cell.budget->text() : ""},
                   {"strategy", strategy.name},
                   {"tuned", tuned},
                   {"seed", std::to_string(seed)}},
        .panel = tunes ? "" : cell.name(),
        .series = strategy.name};
    trial.set.insert(trial.set.end(), setting.set.begin(), setting.set.end());
    trial.set.insert(trial.set.end(), strategy.set.begin(), strategy.set.end());
    if (!tuned.empty()) trial.set.push_back(tuned);
    trial.set.push_back("run.seed=" + std::to_string(seed));
    return trial;
  }

  /// The runs by which values are chosen; none where there is no choice.
  void make_tuning() {
    for (std::size_t cell = 0; cell < cells_.size(); ++cell)
      for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy) {
        const std::vector<std::string>& values = cells_[cell].setting->tune;
        if (values.size() < 2) continue;
        for (const std::string& tuned : values)
          for (int seed = options_.seeds; seed < 2 * options_.seeds; ++seed)
            trials_.push_back(trial("tune", cells_[cell], strategies_[strategy], tuned, seed));
      }
    waiting_for_ = trials_.size();
  }

  void make_reported() {
    for (std::size_t cell = 0; cell < cells_.size(); ++cell)
      for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy) {
        chosen_[{cell, strategy}] = choose(cell, strategy);
        for (int seed = 0; seed < options_.seeds; ++seed)
          trials_.push_back(
              trial("report", cells_[cell], strategies_[strategy], chosen_[{cell, strategy}], seed));
      }
  }

  /// The best of what is tuned, by its mean over seeds; the first of equals.
  std::string choose(std::size_t cell, std::size_t strategy) const {
    const std::vector<std::string>& values = cells_[cell].setting->tune;
    if (values.size() < 2) return values.empty() ? "" : values.front();
    std::vector<double> means;
    for (const std::string& tuned : values) {
      std::vector<double> worth;
      for (int seed = options_.seeds; seed < 2 * options_.seeds; ++seed)
        if (const auto value =
                found(trial("tune", cells_[cell], strategies_[strategy], tuned, seed), common.metric))
          worth.push_back(studies::worth(common.goal, *value));
      means.push_back(worst_of_none(worth));
    }
    return values[static_cast<std::size_t>(std::ranges::max_element(means) - means.begin())];
  }

  static double worst_of_none(const std::vector<double>& worth) {
    return worth.empty() ? studies::worth(trainyard::StudyGoal::max, studies::nan)
                         : studies::interval(worth).mean;
  }

  /// Nothing of a trial that failed.
  std::optional<double> found(const StudyTrial& trial, const std::string& metric) const {
    const auto outcome = outcomes_.find(trial.name);
    if (outcome == outcomes_.end() || outcome->second.end == trainyard::TrialOutcome::End::failed)
      return std::nullopt;
    return studies::value_of(outcome->second, metric);
  }

  /// A metric of each seed.
  std::vector<std::optional<double>> by_seed(std::size_t cell, std::size_t strategy,
                                             const std::string& metric) const {
    std::vector<std::optional<double>> values;
    for (int seed = 0; seed < options_.seeds; ++seed)
      values.push_back(found(
          trial("report", cells_[cell], strategies_[strategy], chosen_.at({cell, strategy}), seed), metric));
    return values;
  }

  std::vector<double> there(std::size_t cell, std::size_t strategy, const std::string& metric) const {
    std::vector<double> values;
    for (const std::optional<double>& value : by_seed(cell, strategy, metric))
      if (value) values.push_back(*value);
    return values;
  }

  /// Of each strategy in a cell: its mean, more is better.
  std::vector<double> worths(std::size_t cell) const {
    std::vector<double> all;
    for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy) {
      std::vector<double> worth;
      for (const double value : there(cell, strategy, common.metric))
        worth.push_back(studies::worth(common.goal, value));
      all.push_back(worst_of_none(worth));
    }
    return all;
  }

  /// The average over cells; strategies that tie share theirs.
  std::vector<double> ranks() const {
    std::vector<double> sums(strategies_.size(), 0.0);
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      const std::vector<double> means = worths(cell);
      for (std::size_t i = 0; i < means.size(); ++i) {
        const auto better =
            static_cast<double>(std::ranges::count_if(means, [&](double other) { return other > means[i]; }));
        const auto ties = static_cast<double>(std::ranges::count(means, means[i]));
        sums[i] += (better + (ties + 1) / 2) / static_cast<double>(cells_.size());
      }
    }
    return sums;
  }

  trainyard::ResultCell mean(std::size_t cell, std::size_t strategy, const std::string& metric) const {
    const std::vector<double> values = there(cell, strategy, metric);
    if (values.empty()) return {"failed", {}, {}};
    const studies::Interval of = studies::interval(values);
    std::string text = studies::printed("%.4f", of.mean);
    if (const std::string& tuned = chosen_.at({cell, strategy}); !tuned.empty())
      text += " (" + tuned.substr(tuned.rfind('=') + 1) + ")";
    const auto failed = static_cast<std::size_t>(options_.seeds) - values.size();
    if (failed > 0) text += ", " + std::to_string(failed) + " failed";
    return {text, of.mean, std::isnan(of.half) ? std::nullopt : std::optional(of.half)};
  }

  trainyard::ResultCell difference(std::size_t cell, std::size_t against, std::size_t strategy,
                                   const std::string& metric) const {
    if (strategy == against) return {"-", {}, {}};
    const auto a = by_seed(cell, against, metric), b = by_seed(cell, strategy, metric);
    std::vector<double> pairs;
    for (std::size_t seed = 0; seed < a.size(); ++seed)
      if (a[seed] && b[seed]) pairs.push_back(*a[seed] - *b[seed]);
    if (pairs.empty()) return {"failed", {}, {}};
    const studies::Interval of = studies::interval(pairs);
    const bool known = !std::isnan(of.half);  // of one seed it is not
    return {studies::printed("%+.4f", of.mean) + (known ? " ± " + studies::printed("%.4f", of.half) : ""),
            of.mean, known ? std::optional(of.half) : std::nullopt};
  }

  /// Of each cell the differences of one strategy from all.
  trainyard::ResultTable differences(std::string title, const std::string& metric,
                                     const std::vector<std::size_t>& against) const {
    trainyard::ResultTable table{.title = std::move(title), .columns = {""}, .rows = {}};
    const bool one = std::ranges::count(against, against.front()) == std::ssize(against);
    for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy)
      if (!one || strategy != against.front()) table.columns.push_back(strategies_[strategy].name);
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      table.rows.push_back({{cells_[cell].name(), {}, {}}});
      for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy)
        if (!one || strategy != against.front())
          table.rows.back().push_back(difference(cell, against[cell], strategy, metric));
    }
    return table;
  }

  /// Of each cell the strategy whose mean is best.
  std::vector<std::size_t> best() const {
    std::vector<std::size_t> best;
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      const std::vector<double> means = worths(cell);
      best.push_back(static_cast<std::size_t>(std::ranges::max_element(means) - means.begin()));
    }
    return best;
  }

  void add_tables(const std::string& metric, std::vector<trainyard::ResultTable>& tables) const {
    const bool tuned = std::ranges::any_of(chosen_, [](const auto& each) { return !each.second.empty(); });
    trainyard::ResultTable means{.title = metric + ", mean over " + std::to_string(options_.seeds) +
                                          (options_.seeds == 1 ? " seed" : " seeds") +
                                          (tuned ? "; in brackets what it was tuned to" : ""),
                                 .columns = {""},
                                 .rows = {}};
    for (const Cell& cell : cells_) means.rows.push_back({{cell.name(), {}, {}}});
    for (std::size_t strategy = 0; strategy < strategies_.size(); ++strategy) {
      means.columns.push_back(strategies_[strategy].name);
      for (std::size_t cell = 0; cell < cells_.size(); ++cell)
        means.rows[cell].push_back(mean(cell, strategy, metric));
    }
    if (metric == common.metric) {
      means.rows.push_back({{"average rank", {}, {}}});
      for (const double rank : ranks())
        means.rows.back().push_back({studies::printed("%.2f", rank), rank, {}});
    }
    tables.push_back(std::move(means));
    if (strategies_.size() < 2) return;
    const std::string paired = " less each other, paired by seed" +
                               std::string(options_.seeds > 1 ? ", with its 95 % interval" : "");
    const auto against = std::ranges::find(strategies_, options_.against, &Strategy::name);
    const std::vector<std::size_t> chosen(cells_.size(),
                                          static_cast<std::size_t>(against - strategies_.begin()));
    tables.push_back(differences(options_.against + paired, metric, chosen));
    if (const std::vector<std::size_t> best = this->best(); strategies_.size() > 2 && best != chosen)
      tables.push_back(differences("The best" + paired, metric, best));
  }

  /// Of each cell, by how much a strategy is above or below the mean of all: cells differ by more than strategies do.
  trainyard::ResultPlot plot() const {
    trainyard::ResultPlot plot{.title = common.metric + " against the mean of all",
                               .x_label = "",
                               .y_label = common.metric,
                               .places = {},
                               .log_x = false,
                               .series = {}};
    for (const Strategy& strategy : strategies_)
      plot.series.push_back({.name = strategy.name, .points = {}, .bold = strategy.name == options_.against});
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      plot.places.push_back(cells_[cell].name());
      std::vector<double> means;
      for (std::size_t i = 0; i < strategies_.size(); ++i)
        if (const double mean = studies::interval(there(cell, i, common.metric)).mean; std::isfinite(mean))
          means.push_back(mean);
      const double centre = studies::interval(means).mean;
      for (std::size_t i = 0; i < strategies_.size(); ++i) {
        const studies::Interval of = studies::interval(there(cell, i, common.metric));
        plot.series[i].points.push_back(
            {static_cast<double>(cell), of.mean - centre, std::isfinite(of.half) ? of.half : 0.0});
      }
    }
    return plot;
  }

  Options options_;
  std::vector<Setting> settings_;
  std::vector<Strategy> strategies_;
  std::vector<Cell> cells_;
  std::vector<StudyTrial> trials_;
  std::size_t given_ = 0;
  std::size_t waiting_for_ = 0;                                        ///< runs by which values are chosen
  std::map<std::pair<std::size_t, std::size_t>, std::string> chosen_;  ///< by cell and strategy
  std::map<std::string, trainyard::TrialOutcome> outcomes_;
};

}  // namespace

TRAINYARD_PLUGIN(Compare)

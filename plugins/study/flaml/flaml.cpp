// FLAML: Wang, Wu, Weimer and Zhu, "FLAML: A Fast and Lightweight AutoML Library", MLSys 2021. Among several learners, each a
// run file with a space of its own, within a budget of time: which one has the next trial (learner_choice.hpp), of which
// configuration (FLOW2, frugal_search.hpp), on how many samples, and judged how (resampling.hpp). Each begins where trials are
// cheap, and dear ones come only where they pay.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <trainyard/random.hpp>
#include <trainyard/study.hpp>

#include "../cost.hpp"
#include "../frugal_search.hpp"
#include "../guided.hpp"
#include "ensemble.hpp"
#include "learner_choice.hpp"
#include "lib/printed.hpp"
#include "resampling.hpp"

namespace studies {

enum class Resampling : std::uint8_t { automatic, folds, holdout, own };
enum class Retrain : std::uint8_t { full, budget, none };

}  // namespace studies

template <>
struct trainyard::Words<studies::Resampling> {
  static constexpr std::string_view words[] = {"auto", "folds", "holdout", "own"};
};
template <>
struct trainyard::Words<studies::Retrain> {
  static constexpr std::string_view words[] = {"full", "budget", "none"};
};

namespace {

using namespace trainyard;
using studies::Holdout, studies::LearnerRecord, studies::Parts, studies::Values;

struct LearnerOptions {
  std::string name, run;
  std::vector<std::string> set;
  std::vector<studies::StartedDimension> space;
  double cost = 1.0;

  static void describe(Fields<LearnerOptions>& m) {
    m.option("name", &LearnerOptions::name, "what tables call it").required();
    m.option("run", &LearnerOptions::run, "its run file; that of the study without one").file();
    m.option("set", &LearnerOptions::set, "its changes of the run file, as after --set");
    m.option("space", &LearnerOptions::space, "what is searched of it: keys, their values, where to begin")
        .required();
    m.option("cost", &LearnerOptions::cost,
             "what its cheapest trial costs, by comparison with the other learners")
        .above(0);
  }
};

template <class T>
bool differs(const Value& one, const Value& other) {
  const T *const a = one.get_if<T>(), *const b = other.get_if<T>();
  return a != nullptr && b != nullptr && *a != *b;
}

/// Returns whether the two splits of [data] are of the same samples, whatever part of them each takes: no text or number of
/// their datasets differs.
bool is_same_data(const Table& data, const Table& train, const Table& val) {
  const auto in = [&](const Table& split, const std::string& key) {
    const Value* const own = split.find(key);
    return own != nullptr ? own : data.find(key);
  };
  const auto is_alike = [&](const Table::Entry& entry) {
    const Value *const one = in(train, entry.key), *const other = in(val, entry.key);
    return entry.key == "take" || entry.key == "batch_size" || one == nullptr || other == nullptr ||
           !(differs<std::string>(*one, *other) || differs<std::int64_t>(*one, *other));
  };
  return std::ranges::all_of(train.entries(), is_alike) && std::ranges::all_of(val.entries(), is_alike);
}

/// A learner with its search.
struct Learner {
  std::string name, run;
  std::vector<std::string> set;  ///< with those of the study
  std::vector<studies::StartedDimension> space;
  std::optional<studies::FrugalSearch> search;
  LearnerRecord record;
  std::int64_t folds = 0;     ///< that it trains on at present, of a holdout
  double cost_at_best = 0.0;  ///< cost of the trial that found the best configuration of its search
  double cost_since = 0.0;    ///< cost of those after it
  double least = LearnerRecord::infinity;  ///< error of the best one at the present number of folds
  bool is_trying = false, is_over = false;
};

/// A configuration, which one trial judges, or one for each fold.
struct Configuration {
  std::size_t learner = 0;
  Values values;
  std::int64_t folds = 0;  ///< that it is trained on, of a holdout
  int given = 0, ended = 0;
  double sum = 0.0;    ///< of the metric over its trials; NaN once one failed
  double first = 0.0;  ///< the metric of the first of them, of fold 0
  double cost = 0.0, seconds = 0.0;
  double ended_at = 0.0;  ///< what the study had cost by then

  bool failed() const { return std::isnan(sum); }
  bool has_more(int trials) const { return !failed() && given < trials; }
  bool is_over(int trials) const { return ended == given && !has_more(trials); }
};

class Flaml final : public Study {
 public:
  struct Options {
    std::vector<LearnerOptions> learners;
    std::optional<Duration> time, budget;
    int trials = 0;
    std::int64_t seed = 0;
    studies::Cost cost = studies::Cost::wall;
    studies::Resampling resampling = studies::Resampling::automatic;
    int folds = 5;
    std::int64_t rows = 10'000;
    studies::Retrain retrain = studies::Retrain::full;
    int ensemble = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("flaml").version("1.0.0").summary(
        "Several learners, each with a space of its own: which one, which values and how many samples, "
        "within a time.");
    m.option("learners", &Options::learners, "what is tried, the cheapest first: run files with their spaces")
        .required();
    m.option("time", &Options::time, "seconds that the search may take: \"60s\"")
        .also({"time_budget", "time_budget_s"});
    m.option("trials", &Options::trials, "how many configurations at most; 0: as many as the time allows")
        .min(0)
        .also({"max_iter"});
    m.option("budget", &Options::budget, "trainer.max_duration; the run files' without one");
    m.option("seed", &Options::seed, "of what is drawn");
    m.option("cost", &Options::cost, studies::cost_help);
    m.option("resampling", &Options::resampling,
             "what a configuration is judged on: folds, a tenth that is held out, or the validation split of "
             "the run "
             "file (own); auto: folds, where the data is small for the time")
        .also({"eval_method"});
    m.option("folds", &Options::folds, "how many folds").min(2).also({"n_splits"});
    m.option("rows", &Options::rows,
             "samples that training begins with, if there are over four times as many; 0: all")
        .min(0)
        .also({"min_sample_size"});
    m.option("retrain", &Options::retrain,
             "the best configuration is trained on all samples: after the search, within its time, or not")
        .also({"retrain_full"});
    m.option(
         "ensemble", &Options::ensemble,
         "of how many of the best configurations an ensemble is chosen at the end, in the run `ensemble`; "
         "0: none")
        .range(0, 1000);
  }
  explicit Flaml(const Options& options) : options_(options) {}

  void open(const Resolve& resolve) override {
    resolve_ = resolve;
    if (options_.learners.empty())
      throw ConfigError("there is no learner: say learners = [{ name, run, space }]");
    if (!options_.time && options_.trials == 0)
      throw ConfigError("there is no end: say time = \"60s\", or trials = 100");
    if (options_.time && options_.time->unit != Duration::Unit::seconds)
      throw ConfigError("time = \"" + options_.time->text() +
                        "\" is no time: give seconds, minutes or hours, as \"60s\"");
    for (const LearnerOptions& each : options_.learners) learners_.push_back(opened(each, resolve));
    for (auto each = learners_.begin(); each != learners_.end(); ++each)
      if (std::any_of(learners_.begin(), each,
                      [&](const Learner& other) { return other.name == each->name; }))
        throw ConfigError("learners: two are called \"" + each->name + "\"");
  }

  /// Begins a learner at the best configuration that another study found for it.
  std::optional<StudyTrial> adopt(const StudyTrial& trial, const TrialOutcome& outcome) override {
    const double error = error_of(studies::value_of(outcome, common.metric));
    for (Learner& learner : learners_) {
      const std::optional<Values> values =
          trial.run == learner.run ? studies::values_in(learner.space, trial.set) : std::nullopt;
      if (!values) continue;
      learner.search->know(*values, error);
      learner.search->try_best_again();
    }
    return std::nullopt;  // it was judged in another way
  }

  std::vector<StudyStage> stages() const override {
    double trials = options_.trials;
    if (options_.trials == 0 && elapsed_ > 0.0)  // as many in the time that is left as there were
      trials = std::ceil(static_cast<double>(begun_) * std::max(1.0, options_.time->count / elapsed_));
    return {{"", static_cast<std::int64_t>(trials) * trials_each_, {}, options_.budget}};
  }

  std::optional<StudyTrial> next(int running) override {
    for (auto& [number, each] : open_)
      if (each.has_more(trials_each_)) return trial(number, each);
    if (retrained_ || (!is_known_ && running > 0)) return std::nullopt;
    if (is_over()) return running == 0 ? last_trial() : std::nullopt;
    std::vector<studies::Candidate> candidates;
    for (const Learner& each : learners_)
      candidates.push_back({&each.record, !each.is_over && !each.is_trying && fits(each)});
    const RandomStream random(static_cast<std::uint64_t>(options_.seed), "learner");
    while (const auto chosen = studies::next_learner(candidates, random.uniform(begun_))) {
      if (std::optional<Values> values = proposed(learners_[*chosen]))
        return begin(*chosen, std::move(*values));
      candidates[*chosen].is_free = false;
    }
    return running == 0 ? last_trial() : std::nullopt;
  }

  void report(const TrialOutcome& outcome) override {
    elapsed_ = std::max(elapsed_, outcome.elapsed);
    if (outcome.trial == best_name) return;
    if (outcome.trial == ensemble_name) {
      ensemble_ = outcome;
      return;
    }
    const std::size_t number = std::stoul(outcome.trial);
    Configuration& of = open_.at(number);
    const double value = studies::value_of(outcome, common.metric);
    of.sum += std::isfinite(value) ? value : studies::nan;
    if (!takes_folds() || outcome.trial.ends_with("/fold 0")) of.first = value;
    const double cost = studies::cost_of(outcome, options_.cost);
    of.cost += cost;
    of.seconds += outcome.seconds;
    least_seconds_ = std::min(least_seconds_, outcome.seconds);
    spent_ += cost;
    of.ended_at = options_.cost == studies::Cost::wall ? elapsed_ : spent_;
    ++of.ended;
    if (!is_known_ && outcome.rows > 0 && !learn_of_data(outcome, of)) return;
    if (of.is_over(trials_each_)) end(number);
  }

  StudyResult result() const override;

 private:
  static constexpr const char *best_name = "best", *ensemble_name = "ensemble";
  static constexpr double least_limit = 0.1;  ///< seconds that any trial may take
  static constexpr int most_trials = 10'000;  ///< of one learner on all samples

  Learner opened(const LearnerOptions& given, const Resolve& resolve);
  void take_splits(const std::string& learner, const Table& run);

  double error_of(double metric) const { return common.goal == StudyGoal::max ? 1.0 - metric : metric; }
  double metric_of(const Configuration& of) const { return of.sum / trials_each_; }
  /// Returns the seconds that the search still has.
  double left() const {
    return options_.time ? options_.time->count - elapsed_ - reserve() : LearnerRecord::infinity;
  }
  bool takes_folds() const { return trials_each_ > 1; }
  std::string cost_name() const {
    constexpr const char* names[] = {"seconds", "processor seconds", "steps"};
    return names[static_cast<std::size_t>(options_.cost)];
  }

  bool is_over() const;
  bool keeps_time() const {
    return options_.retrain == studies::Retrain::budget && options_.time && !is_owned_;
  }
  double seconds_to_train(const Configuration& of) const;
  std::optional<std::size_t> best_to_train() const;
  bool fits(const Learner& learner) const;
  std::optional<Values> proposed(Learner& learner);
  std::optional<StudyTrial> begin(std::size_t learner, Values values);
  StudyTrial trial(std::size_t number, Configuration& of);
  double reserve() const;
  std::optional<StudyTrial> last_trial();
  std::optional<StudyTrial> ensemble_trial();
  std::vector<std::size_t> possible_members() const;
  std::optional<StudyTrial> final_trial();
  bool learn_of_data(const TrialOutcome& outcome, Configuration& of);
  void end(std::size_t number);
  void grow(Learner& learner);
  Parts parts(const Configuration& of) const;
  StudyTrial plain_trial(const Configuration& of) const;
  ResultTable configurations() const;
  std::optional<ResultTable> ensemble_table() const;
  ResultPlot::Series progress(std::size_t learner, ResultTable& learners) const;
  std::string seconds_for(const Configuration& of) const;
  std::string seconds_for_ensemble() const;
  static std::string seconds_text(double seconds) {
    return Duration{std::ceil(10.0 * std::max(least_limit, seconds)) / 10.0, Duration::Unit::seconds}.text();
  }
  double rows_of(const Configuration& of) const {
    return holdout_ && !is_owned_ ? holdout_->rows_of(of.folds) : rows_;
  }

  Options options_;
  Resolve resolve_;
  std::vector<Learner> learners_;
  std::map<std::size_t, Configuration> open_, ended_;  ///< by number
  std::size_t begun_ = 0;
  double elapsed_ = 0.0;
  double least_seconds_ = LearnerRecord::infinity;  ///< of a trial
  bool is_owned_ = false;  ///< configurations are judged by the run files' own validation split
  bool is_known_ = false;  ///< the data is: how many samples it has
  double spent_ = 0.0;
  double rows_ = 0.0;    ///< samples that there are to train on
  int trials_each_ = 1;  ///< trials of a configuration
  std::optional<Holdout> holdout_;
  std::optional<std::size_t> best_;  ///< number of the best configuration
  std::optional<std::size_t>
      retrained_;  ///< the one that is trained on all samples, once that trial is given
  bool is_ensemble_given_ = false;
  std::vector<std::size_t> members_;  ///< numbers of the configurations that it is chosen from
  std::optional<TrialOutcome> ensemble_;
};

Learner Flaml::opened(const LearnerOptions& given, const Resolve& resolve) {
  studies::check(given.space);
  Learner learner;
  learner.name = given.name;
  learner.run = given.run.empty() ? common.run : given.run;
  learner.set = common.set;
  learner.space = given.space;
  learner.set.insert(learner.set.end(), given.set.begin(), given.set.end());
  learner.record.relative_cost = given.cost;
  StudyTrial plain;
  plain.name = "learner " + given.name;
  plain.run = learner.run;
  plain.set = learner.set;
  plain.until = options_.budget;
  Values start = studies::start_of(given.space, plain, resolve);
  for (std::size_t i = 0; i < start.size(); ++i)
    plain.set.push_back(given.space[i].key + "=" + given.space[i].text(start[i]));
  take_splits(given.name, resolve(plain));
  const RandomStream seeds(static_cast<std::uint64_t>(options_.seed), "learner/" + given.name);
  learner.search.emplace(studies::knobs_of(given.space), std::move(start), seeds.seed());
  return learner;
}

/// Decides whether a learner is judged by its run file's validation split: where that is of other data than the training
/// split. The first learner decides for all.
void Flaml::take_splits(const std::string& learner, const Table& run) {
  const Value* const data = run.find("data");
  const Value* const train = data == nullptr ? nullptr : data->as<Table>().find("train");
  const Value* const val = data == nullptr ? nullptr : data->as<Table>().find("val");
  if (data != nullptr && val == nullptr)
    throw ConfigError(
        "learner \"" + learner +
        "\" has no [data.val], on which it could be judged: add it, of the file of [data.train]");
  const bool is_other =
      train != nullptr && !is_same_data(data->as<Table>(), train->as<Table>(), val->as<Table>());
  if (is_other && (options_.resampling == studies::Resampling::folds ||
                   options_.resampling == studies::Resampling::holdout))
    throw ConfigError(
        "learner \"" + learner +
        "\" is to be judged on parts of one file, and its [data.val] is of other data than [data.train]: "
        "take the same for both, or resampling = \"own\"");
  const bool is_owned = is_other || options_.resampling == studies::Resampling::own;
  if (!learners_.empty() && is_owned != is_owned_)
    throw ConfigError("learner \"" + learner + "\" has a validation split of " +
                      (is_other ? "other data" : "the data that it trains on") + ", unlike \"" +
                      learners_.front().name + "\", with which it is compared: give all the same data");
  is_owned_ = is_owned;
}

/// Returns whether the search has ended. Where the last training is to come within its time, it ends early enough for that.
bool Flaml::is_over() const {
  if (is_ensemble_given_) return true;
  if (options_.trials > 0 && static_cast<int>(begun_) >= options_.trials) return true;
  if (left() <= 0.0) return true;
  const std::optional<std::size_t> last = keeps_time() ? best_to_train() : std::nullopt;
  return last &&
         seconds_to_train(ended_.at(*last)) + std::max(ended_.at(*last).seconds, least_limit) >= left();
}

/// Returns what it takes to train a configuration on all samples.
double Flaml::seconds_to_train(const Configuration& of) const {
  const double own = of.seconds / trials_each_ - least_seconds_;  // the rest is what any trial takes
  return least_seconds_ + own * rows_ / rows_of(of);
}

/// Returns the best configuration; the best that can be trained on all samples in the time that is left, if that counts.
std::optional<std::size_t> Flaml::best_to_train() const {
  if (!keeps_time()) return best_;
  std::optional<std::size_t> best;
  for (const auto& [number, each] : ended_)
    if (!each.failed() && seconds_to_train(each) <= left() &&
        (!best || error_of(metric_of(each)) < error_of(metric_of(ended_.at(*best)))))
      best = number;
  return best;
}

/// Returns whether another trial of a learner, as long as its best one was, would end in time.
bool Flaml::fits(const Learner& learner) const {
  const bool is_full = !holdout_ || learner.folds == holdout_->most();
  if (is_full && learner.record.trials >= most_trials) return false;
  return options_.cost != studies::Cost::wall || learner.record.best_cost <= left();
}

/// Returns what a learner tries next; with more samples, once nothing better was found for four times what the best cost.
std::optional<Values> Flaml::proposed(Learner& learner) {
  const bool may_grow = holdout_ && !is_owned_ && learner.folds < holdout_->most();
  if (may_grow && learner.cost_since > 0.0 && learner.cost_since >= studies::more_rows * learner.cost_at_best)
    grow(learner);
  const bool is_full = !holdout_ || is_owned_ || learner.folds == holdout_->most();
  std::optional<Values> values = learner.search->next(0, is_full);
  if (!values && !is_full) {
    grow(learner);
    values = learner.search->next(0, learner.folds == holdout_->most());
  }
  learner.is_over = !values;
  return values;
}

void Flaml::grow(Learner& learner) {
  learner.folds = holdout_->after(learner.folds);
  learner.record.rows = holdout_->rows_of(learner.folds);
  learner.least = LearnerRecord::infinity;
  learner.cost_since = 0.0;
  learner.search->try_best_again();
}

std::optional<StudyTrial> Flaml::begin(std::size_t learner, Values values) {
  learners_[learner].is_trying = true;
  const std::size_t number = begun_++;
  Configuration& of = open_[number];
  of.learner = learner;
  of.values = std::move(values);
  of.folds = learners_[learner].folds;
  return trial(number, of);
}

/// Returns the parts of the data for a configuration's next trial.
Parts Flaml::parts(const Configuration& of) const {
  if (takes_folds() || !holdout_) return studies::fold_parts(of.given, options_.folds);
  return holdout_->parts(of.folds);
}

/// Returns a trial of a configuration that takes the data as its run file does.
StudyTrial Flaml::plain_trial(const Configuration& of) const {
  const Learner& learner = learners_[of.learner];
  StudyTrial trial{.name = {},
                   .run = learner.run,
                   .set = learner.set,
                   .until = options_.budget,
                   .labels = {},
                   .panel = {},
                   .series = {}};
  std::string values;
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    trial.set.push_back(learner.space[i].key + "=" + learner.space[i].text(of.values[i]));
    values += (i == 0 ? "" : " ") + trial.set.back();
  }
  trial.labels = {{"learner", learner.name}, {"values", values}};
  return trial;
}

/// Returns the seconds that a trial may take: those that are left, or half of them times its share of the samples.
std::string Flaml::seconds_for(const Configuration& of) const {
  constexpr double first_share = 0.05;
  const std::optional<std::size_t> last = keeps_time() ? best_to_train() : std::nullopt;
  double seconds = left() - (last ? seconds_to_train(ended_.at(*last)) : 0.0);
  if (!is_known_) seconds *= first_share;
  if (is_known_ && rows_of(of) < rows_) seconds *= 0.5 * rows_of(of) / rows_;
  return seconds_text(seconds);
}

StudyTrial Flaml::trial(std::size_t number, Configuration& of) {
  StudyTrial trial = plain_trial(of);
  trial.name = studies::number_name(number);
  trial.panel = common.metric;
  trial.series = learners_[of.learner].name;
  const bool is_fold = takes_folds() || (!is_known_ && !is_owned_);
  if (is_fold) trial.name += "/fold " + std::to_string(of.given);
  if (!is_owned_) {
    const Parts parts = this->parts(of);
    trial.set.push_back("data.train.take=" + parts.train);
    trial.set.push_back("data.val.take=" + parts.val);
    trial.labels.emplace_back("train", parts.train);
    trial.labels.emplace_back("val", parts.val);
  }
  if (options_.time) trial.set.push_back("trainer.max_wall_time=" + seconds_for(of));
  ++of.given;
  return trial;
}

/// Decides how configurations are judged, by the first trial: its own, of one fold, counts where it is judged like that.
/// Returns whether it does.
bool Flaml::learn_of_data(const TrialOutcome& outcome, Configuration& of) {
  is_known_ = true;
  if (!is_owned_ && outcome.rows < options_.folds)
    throw ConfigError("the data has " + std::to_string(outcome.rows) + " samples, which make no " +
                      std::to_string(options_.folds) + " folds: give it more, or `folds` less");
  if (is_owned_) {
    rows_ = static_cast<double>(outcome.rows);
    return true;
  }
  const double seconds = options_.time ? options_.time->count : -1.0;
  const bool folds =
      options_.resampling == studies::Resampling::folds ||
      (options_.resampling == studies::Resampling::automatic &&
       studies::takes_folds(static_cast<double>(outcome.rows), static_cast<double>(outcome.values), seconds));
  if (folds) {
    trials_each_ = options_.folds;
    rows_ = static_cast<double>(outcome.rows) * (1.0 - 1.0 / options_.folds);
  } else {
    holdout_.emplace(outcome.rows, options_.rows);
    rows_ = holdout_->rows_of(holdout_->most());
  }
  for (Learner& each : learners_) {
    each.folds = folds ? 0 : holdout_->first();
    each.record.all_rows = rows_;
    each.record.rows = folds ? rows_ : holdout_->rows_of(each.folds);
  }
  if (folds) return true;
  Configuration again;  // it is given once more
  again.learner = of.learner;
  again.values = std::move(of.values);
  again.folds = holdout_->first();
  of = std::move(again);
  return false;
}

void Flaml::end(std::size_t number) {
  Configuration of = open_.extract(number).mapped();
  Learner& learner = learners_[of.learner];
  learner.is_trying = false;
  const double error = error_of(metric_of(of));
  learner.record.take(error, of.cost);
  learner.search->report(of.values, error);
  if (error < learner.least) {
    learner.least = error;
    learner.cost_at_best = of.cost;
    learner.cost_since = 0.0;
  } else {
    learner.cost_since += of.cost;
  }
  const double least = best_ ? error_of(metric_of(ended_.at(*best_))) : LearnerRecord::infinity;
  ended_.emplace(number, std::move(of));
  if (error < least) best_ = number;
}

/// Returns the seconds that are kept for the ensemble: it reads the data, as the shortest trial did, and has each of its
/// candidates answer once, as each was evaluated at the end of its training.
double Flaml::reserve() const {
  constexpr double most_share = 0.05;
  if (options_.ensemble == 0 || is_ensemble_given_ || !options_.time || begun_ == 0) return 0.0;
  return std::min(most_share * options_.time->count, 3.0 * least_seconds_);
}

std::optional<StudyTrial> Flaml::last_trial() {
  std::optional<StudyTrial> trial = ensemble_trial();
  return trial ? trial : final_trial();
}

/// Returns the configurations that may be members, the best of each learner first, then by their errors: those that were
/// trained on all samples but what is held out, unless they have four times the best one's error (the package flaml's rule).
std::vector<std::size_t> Flaml::possible_members() const {
  constexpr double most_errors = 4.0;
  std::vector<std::tuple<bool, double, std::size_t>> order;  // an earlier one is better
  for (const auto& [number, each] : ended_) {
    const bool is_full = !holdout_ || is_owned_ || each.folds == holdout_->most();
    if (!each.failed() && is_full) order.emplace_back(true, error_of(metric_of(each)), number);
  }
  std::ranges::sort(order);
  std::set<std::size_t> learners;
  for (auto& [is_later, error, number] : order) is_later = !learners.insert(ended_.at(number).learner).second;
  if (!order.empty()) {
    const double most = most_errors * std::get<double>(order.front());
    std::erase_if(order, [most](const auto& each) { return most > 0.0 && std::get<double>(each) > most; });
  }
  std::ranges::sort(order);
  std::vector<std::size_t> numbers;
  for (const auto& each : order) numbers.push_back(std::get<std::size_t>(each));
  return numbers;
}

/// Returns the trial that chooses members by the samples that none of them was trained on: those that are held out, or those
/// of fold 0, whose networks are taken. Nothing where there are no two whose networks see the same features.
std::optional<StudyTrial> Flaml::ensemble_trial() {
  if (is_ensemble_given_ || options_.ensemble == 0 || !best_) return std::nullopt;
  constexpr int steps = 50;
  std::vector<std::size_t> numbers;
  std::vector<studies::PossibleMember> members;
  StudyTrial trial;
  for (const std::size_t number : possible_members()) {
    const Configuration& each = ended_.at(number);
    const StudyTrial own = plain_trial(each);
    studies::PossibleMember member{resolve_(own),
                                   "../" + studies::number_name(number) + (takes_folds() ? "/fold 0" : "")};
    if (members.empty()) trial = own;
    const bool is_alike = members.empty() || (own.run == trial.run && studies::data_text(member.run) ==
                                                                          studies::data_text(members[0].run));
    if (!is_alike || std::ssize(members) == options_.ensemble) continue;
    members.push_back(std::move(member));
    numbers.push_back(number);
  }
  if (members.size() < 2) return std::nullopt;
  trial.name = ensemble_name;
  std::erase_if(trial.set, [](const std::string& change) { return !studies::is_of_data(change); });
  trial.set.insert(trial.set.begin(), common.set.begin(), common.set.end());
  for (std::string& change : studies::ensemble_changes(members, steps))
    trial.set.push_back(std::move(change));
  trial.until.reset();
  trial.labels = {{"learner", ensemble_name}, {"values", std::to_string(members.size()) + " configurations"}};
  if (!is_owned_) {
    const Parts of =
        takes_folds() ? studies::fold_parts(0, options_.folds) : holdout_->parts(holdout_->most());
    trial.set.push_back("data.train.take=" + of.train);
    trial.set.push_back("data.val.take=" + of.val);
    trial.labels.emplace_back("train", of.train);
    trial.labels.emplace_back("val", of.val);
  }
  if (keeps_time()) trial.set.push_back("trainer.max_wall_time=" + seconds_for_ensemble());
  members_ = std::move(numbers);
  is_ensemble_given_ = true;
  return trial;
}

/// Returns the seconds that the ensemble may take, where the last training is to come within the time: what is left ahead of
/// that, and what was kept.
std::string Flaml::seconds_for_ensemble() const {
  const std::optional<std::size_t> last = best_to_train();
  const double free = left() - (last ? seconds_to_train(ended_.at(*last)) : 0.0);
  return seconds_text(std::max(free, 0.0) + reserve());
}

/// Returns the training of the best configuration on all samples.
std::optional<StudyTrial> Flaml::final_trial() {
  if (retrained_ || options_.retrain == studies::Retrain::none || is_owned_) return std::nullopt;
  retrained_ = best_to_train();
  if (!retrained_) return std::nullopt;
  StudyTrial trial = plain_trial(ended_.at(*retrained_));
  trial.name = best_name;
  trial.set.push_back("data.train.take=first 100%");
  trial.labels.insert(trial.labels.end(), {{"train", "first 100%"}, {"val", "of the same samples"}});
  return trial;
}

/// Returns the table of all configurations, the best first.
ResultTable Flaml::configurations() const {
  std::vector<std::pair<double, std::size_t>> order;
  for (const auto& [number, each] : ended_)
    order.emplace_back(each.failed() ? LearnerRecord::infinity : error_of(metric_of(each)), number);
  std::ranges::sort(order);
  const std::string judged = is_owned_       ? "the validation split of the run file"
                             : takes_folds() ? std::to_string(trials_each_) + " folds, mean of them"
                                             : "a tenth that is held out";
  ResultTable table{.title = std::to_string(ended_.size()) + " configurations by " + common.metric +
                             ", the best first; judged on " + judged + ", by which they were chosen as well",
                    .columns = {"trial", "learner", "values", "samples", common.metric, cost_name()},
                    .rows = {}};
  for (const auto& [error, number] : order) {
    const Configuration& each = ended_.at(number);
    const StudyTrial trial = plain_trial(each);
    ResultCell found =
        each.failed() ? ResultCell{"failed", {}, {}} : studies::cell({metric_of(each), studies::nan});
    table.rows.push_back({{studies::number_name(number), {}, {}},
                          {trial.labels[0].second, {}, {}},
                          {trial.labels[1].second, {}, {}},
                          {lib::printed("%.0f", rows_of(each)), rows_of(each), {}},
                          std::move(found),
                          {studies::printed("%.4g", each.cost), each.cost, {}}});
  }
  return table;
}

/// Returns the best metric of a learner by what the study had cost, and adds the learner's row to a table.
ResultPlot::Series Flaml::progress(std::size_t learner, ResultTable& learners) const {
  std::vector<const Configuration*> by_time;
  for (const auto& [number, each] : ended_)
    if (each.learner == learner) by_time.push_back(&each);
  std::ranges::stable_sort(by_time, {}, &Configuration::ended_at);
  ResultPlot::Series best{.name = learners_[learner].name, .points = {}};
  double cost = 0.0, least = LearnerRecord::infinity, metric = studies::nan;
  for (const Configuration* each : by_time) {
    cost += each->cost;
    if (each->failed() || error_of(metric_of(*each)) >= least) continue;
    metric = metric_of(*each);
    least = error_of(metric);
    best.points.push_back({each->ended_at, metric, 0.0});
  }
  learners.rows.push_back({{learners_[learner].name, {}, {}},
                           {std::to_string(by_time.size()), static_cast<double>(by_time.size()), {}},
                           {studies::printed("%.4g", cost), cost, {}},
                           studies::cell({metric, studies::nan})});
  return best;
}

/// Returns the members that were chosen; nothing where there is no ensemble.
std::optional<ResultTable> Flaml::ensemble_table() const {
  if (!ensemble_ || ensemble_->end != TrialOutcome::End::done) return std::nullopt;
  double least = LearnerRecord::infinity;
  for (const std::size_t number : members_) least = std::min(least, error_of(ended_.at(number).first));
  const auto shown = [](double metric) { return studies::printed("%.4f", metric); };
  const double best = common.goal == StudyGoal::max ? 1.0 - least : least;
  ResultTable table{.title = "The run ensemble has " + common.metric + " " +
                             shown(studies::value_of(*ensemble_, common.metric)) + ", the best of its " +
                             std::to_string(members_.size()) + " candidates " + shown(best) +
                             ", on the same samples, by which its members were chosen",
                    .columns = {"trial", "learner", "values", "weight", common.metric},
                    .rows = {}};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto weight = ensemble_->metrics.find("chosen/" + std::to_string(i));
    if (weight == ensemble_->metrics.end() || weight->second == 0.0) continue;
    const Configuration& each = ended_.at(members_[i]);
    const StudyTrial trial = plain_trial(each);
    table.rows.push_back({{studies::number_name(members_[i]), {}, {}},
                          {trial.labels[0].second, {}, {}},
                          {trial.labels[1].second, {}, {}},
                          {studies::printed("%.2f", weight->second), weight->second, {}},
                          studies::cell({each.first, studies::nan})});
  }
  return table;
}

StudyResult Flaml::result() const {
  std::string last =
      retrained_ ? "; trained on all samples, in the run best: " + studies::number_name(*retrained_) : "";
  if (ensemble_ && ensemble_->end != TrialOutcome::End::done) last += "; the run ensemble failed";
  ResultTable learners{.title = "What each learner had, and found" + last,
                       .columns = {"learner", "configurations", cost_name(), common.metric},
                       .rows = {}};
  ResultPlot anytime{.title = "Best " + common.metric + " by " + cost_name(),
                     .x_label = cost_name(),
                     .y_label = common.metric,
                     .places = {},
                     .log_x = false,
                     .series = {}};
  for (std::size_t i = 0; i < learners_.size(); ++i)
    if (ResultPlot::Series best = progress(i, learners); !best.points.empty())
      anytime.series.push_back(std::move(best));
  StudyResult result;
  result.tables = {configurations(), std::move(learners)};
  if (std::optional<ResultTable> ensemble = ensemble_table()) result.tables.push_back(std::move(*ensemble));
  result.plots = {std::move(anytime)};
  if (best_) result.best.push_back({"", plain_trial(ended_.at(*best_))});
  return result;
}

}  // namespace
TRAINYARD_PLUGIN(Flaml)

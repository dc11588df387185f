// study/1: decides which trials of a study are run, and how far. `trainyard study FILE` reads the table [study] of
// the file, asks the plugin for trials, trains each as a process of its own, several at once, and tells the plugin
// what came of it:
//
//   [study]
//   type = "random"
//   run = "digits.toml"              # what is trained; without it the file itself is the run file
//   metric = "val/accuracy"
//   trials = 40
//   space = [{ key = "optimizer.lr", low = 1e-4, high = 1, log = true }]
//
// The host keeps a ledger of what it asked and told. A study that was killed goes on from there: the same
// calls, in the same order, are made to a new object of the plugin, which has to give the same answers. So a
// study is a pure function of its options and of those calls: no clock, no random device (draw from a seed
// among the options and the number of the trial), nothing read from files but in `open`. It has no state to
// save, and no host(): it lives in the command, not in a training. All calls come from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("study.hpp");

namespace trainyard {

enum class StudyGoal : std::uint8_t { max, min };
template <>
struct Words<StudyGoal> {
  static constexpr std::string_view words[] = {"max", "min"};
};

/// Options that every study has.
struct StudyOptions {
  std::string run;  ///< run file of the trials, absolute; the host fills it in where it is the file itself
  std::vector<std::string> set;  ///< changes of the run file that all trials have, as after --set
  std::string metric;            ///< a name in result.json's metrics
  StudyGoal goal = StudyGoal::max;
  std::vector<std::string> also;  ///< further metrics, which tables show
  std::string launch;             ///< starts trials on other machines; empty: they run on this one

  static void describe(Fields<StudyOptions>& m) {
    m.option("run", &StudyOptions::run,
             "run file of the trials; without one this file is the run file, and [study] a table of it")
        .file();
    m.option("set", &StudyOptions::set, "changes of the run file for all trials, as after --set");
    m.option("metric", &StudyOptions::metric, "what trials are judged by: a metric of result.json")
        .required();
    m.option("goal", &StudyOptions::goal, "whether more is better, or less");
    m.option("also", &StudyOptions::also, "further metrics, each with its place in the tables");
    m.option("launch", &StudyOptions::launch,
             "starts a trial on another machine that has the same folders: \"srun -N1 {command}\", \"ssh "
             "gpu7 {command}\"");
  }
};

/// Describes a training: a run file, its changes, and how far it goes.
struct StudyTrial {
  /// Names the trial, and the folder of its run in that of the study: "0007", "tune/rex/3" (folders within
  /// folders). A trial with the name of an earlier one and a longer `until` continues that run from its last
  /// checkpoint: with the same `run` and `set`, or the run is refused.
  std::string name;
  std::string run;               ///< run file, absolute
  std::vector<std::string> set;  ///< changes of it, as after --set, later ones over earlier ones
  /// Replaces trainer.max_duration of the run file. What is a share of it ("5%" of warm-up, a schedule
  /// without `schedule.budget`) moves with it: a trial that is to go on says schedule.budget in `set`.
  std::optional<Duration> until;
  /// Columns of runs.csv with their values for this trial: the same columns in all trials of a study.
  std::vector<std::pair<std::string, std::string>> labels;
  /// Say where its learning curve is drawn: those of one series as their mean, in the picture of the panel.
  std::string panel, series;
  /// Commands that run first, one after the other, each its words without `trainyard`: {"prune", "{runs}/0001",
  /// "--out", "{runs}/0002.pruned"}. In them and in `start` "{runs}" stands for the folder of the trials' runs. A
  /// trial that goes on from a checkpoint is past them. One that fails is the trial's failure.
  std::vector<std::vector<std::string>> before = {};
  /// Weights that the run begins with, as run.resume with run.load = "weights"; empty: the model's own.
  std::string start = {};
};

/// The outcome of a trial.
struct TrialOutcome {
  enum class End : std::uint8_t {
    done,
    diverged,  ///< its numbers were not finite
    failed,    ///< everything else: `error` says what happened
  };

  std::string trial;              ///< name of the trial
  std::optional<Duration> until;  ///< as in the trial
  End end = End::done;
  std::map<std::string, double> metrics;  ///< the last value of each; may hold no NaN where `end` is done
  std::string error;
  std::vector<double> curve = {};  ///< the study's metric each time the run recorded it, from its beginning
  double seconds = 0.0;            ///< seconds that its process took
  double cpu_seconds = 0.0;        ///< seconds that processors took for it
  std::int64_t steps = 0;  ///< optimizer steps of its run, with those of earlier trials of the same name
  double elapsed =
      0.0;  ///< seconds that the study had gone on when it ended, without times between processes
  std::int64_t rows = 0;    ///< samples of its training data, whatever `take` says
  std::int64_t values = 0;  ///< numbers in the inputs of one
};

/// At most how many trials of one length a study runs; for the time that is left, and for --dry-run.
struct StudyStage {
  std::string what;  ///< "rung 1", "tuning"; may be empty
  std::int64_t trials = 0;
  std::optional<Duration> from,
      until;  ///< what such a trial trains; none: from the beginning, to the run's end
};

/// An entry of a table: the text that is shown, and for programs the number behind it.
struct ResultCell {
  std::string text;
  std::optional<double> value;
  std::optional<double> half;  ///< half the width of its 95 % interval
};

struct ResultTable {
  std::string title;  ///< a sentence; without a colon
  std::vector<std::string> columns;
  std::vector<std::vector<ResultCell>> rows;  ///< each as long as the columns
};

/// Points are drawn in their order, joined by a line, with an error bar where `half` is more than 0; those
/// that are not finite are left out.
struct ResultPlot {
  struct Point {
    double x = 0.0, y = 0.0, half = 0.0;
  };
  struct Series {
    std::string name;
    std::vector<Point> points;
    bool bold = false;
    bool joined = true;
  };
  std::string title, x_label, y_label;
  std::vector<std::string> places;  ///< names of x = 0, 1, ...; none: x is a number
  bool log_x = false;
  std::vector<Series> series;
};

/// A configuration that came out best; the host writes it as a run file. `until` is how far to train it.
struct StudyBest {
  std::string name;  ///< name of the file; empty where there is one only
  StudyTrial trial;
};

struct StudyResult {
  std::vector<ResultTable> tables;
  std::vector<ResultPlot> plots;
  std::vector<StudyBest> best;
};

class Study : public Plugin {
 public:
  static constexpr Kind kind{"study", 1};
  using Common = StudyOptions;

  /// Returns a trial's resolved run file, as `config show` prints it. Throws ConfigError if it is invalid.
  using Resolve = std::function<Table(const StudyTrial&)>;

  /// Called once, first: the place to refuse options that do not fit together (ConfigError). The host checks
  /// by itself that the trials which `next` gives before the first report are valid.
  virtual void open(const Resolve&) {}

  /// Takes a trial that another study ran which the file had before, with its outcome; called after open(), for
  /// each in the order in which they ended. Returns it, with the study's own labels, if it is one of this study's:
  /// then the study does not give it, nor another one of its name.
  virtual std::optional<StudyTrial> adopt(const StudyTrial&, const TrialOutcome&) { return std::nullopt; }

  /// Returns the trials still to run and those already reported, by stage.
  virtual std::vector<StudyStage> stages() const = 0;

  /// Returns the next trial; `running` are under way. Nothing means: not before one of them is reported, or,
  /// where none is running, that the study is over. A call that returns nothing changes nothing.
  virtual std::optional<StudyTrial> next(int running) = 0;

  /// Takes the outcome of a trial that `next` gave, once for each.
  virtual void report(const TrialOutcome& outcome) = 0;

  /// Called when the study is over; not where all trials failed.
  virtual StudyResult result() const = 0;

  Common common;
};

}  // namespace trainyard

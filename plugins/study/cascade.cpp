// A network pruned ever more and trained again each time, by several scorers, as Liebenwein et al. compare them ("Lost in
// Pruning: The effects of pruning neural networks beyond test accuracy", MLSys 2021, section 3): trained dense, then for
// each ratio scored, pruned by `trainyard prune` and trained on, from the stage before or from the dense network.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <trainyard/study.hpp>

#include "space.hpp"
#include "statistics.hpp"

enum class CascadeMode : std::uint8_t { cascade, oneshot };
template <>
struct trainyard::Words<CascadeMode> {
  static constexpr std::string_view words[] = {"cascade", "oneshot"};
};
enum class StartFrom : std::uint8_t { pruned, rewound, random };
template <>
struct trainyard::Words<StartFrom> {
  static constexpr std::string_view words[] = {"pruned", "rewound", "random"};
};

namespace {

using trainyard::ConfigError;
using trainyard::Duration;
using trainyard::StudyTrial;

/// A way to prune.
struct Method {
  std::string name, scorer, allocation;
  StartFrom start_from = StartFrom::pruned;

  static void describe(trainyard::Fields<Method>& m) {
    m.option("name", &Method::name, "what tables call it").required();
    m.option("scorer", &Method::scorer, "scorer of trainyard prune, as typed there: '{ type = \"sipp\" }'")
        .required();
    m.option("allocation", &Method::allocation, "as in trainyard prune; empty: the scorer's usual one");
    m.option("start_from", &Method::start_from,
             "the weights that pruned networks are trained from, all with their zeros: pruned, their own; "
             "rewound, those of the dense network at rewind_to (the lottery ticket); random, new ones of "
             "another seed");
  }
};

class Cascade final : public trainyard::Study {
 public:
  struct Options {
    std::vector<Method> methods;
    std::vector<double> ratios = {0.2, 0.4, 0.55, 0.68, 0.78, 0.85, 0.9, 0.94, 0.96, 0.98};
    CascadeMode mode = CascadeMode::cascade;
    std::optional<Duration> rewind_to;
    std::vector<std::string> retrain;
    std::optional<Duration> budget;
    int seeds = 3;
    double delta = 0.005;
    bool quick = false;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("cascade").version("1.0.0").summary(
        "A network pruned to ever fewer parameters and trained on each time, by several scorers, over "
        "seeds.");
    m.option("methods", &Options::methods, "ways to prune; magnitude alone without any");
    m.option("ratios", &Options::ratios,
             "shares of the dense network's parameters that are to be gone, ascending");
    m.option("mode", &Options::mode,
             "what is pruned: cascade, the network of the ratio before; oneshot, the dense one each time");
    m.option("rewind_to", &Options::rewind_to,
             "a time of the dense training, in whole epochs or steps (ba), at which it keeps a checkpoint; "
             "\"0ep\": what it began with");
    m.option("retrain", &Options::retrain,
             "changes of the run file for training on, as after --set; without any it is trained as at "
             "first, with the "
             "learning rates of the beginning");
    m.option("budget", &Options::budget, "trainer.max_duration of each training; the run file's without one");
    m.option("seeds", &Options::seeds, "runs of each").min(1);
    m.option("delta", &Options::delta,
             "how much worse than the dense network's the metric may be where a ratio still counts as "
             "without loss")
        .min(0.0);
    m.option("quick", &Options::quick, "one seed, two ratios and 20 steps: to see that the study works");
  }
  explicit Cascade(const Options& options) : options_(options) {}

  void open(const Resolve& resolve) override {
    const trainyard::Table run = resolve(dense_trial(0));
    if (const trainyard::Value* const own = run.find("transforms");
        own != nullptr && !own->as<trainyard::Array>().empty())
      throw ConfigError(
          "the run has [[transforms]], and pruned networks train with one of the study's in their place: "
          "leave "
          "them out");
    if (options_.methods.empty())
      options_.methods = {{.name = "magnitude", .scorer = "{ type = \"magnitude\" }", .allocation = ""}};
    double before = 0.0;
    for (const double ratio : options_.ratios) {
      if (!(ratio > before) || !(ratio < 1.0))
        throw ConfigError("ratios: " + studies::key_text(ratio) + " follows " + studies::key_text(before) +
                          ", and they are to ascend between 0 and 1");
      before = ratio;
    }
    if (options_.ratios.empty())
      throw ConfigError("ratios is empty: say how much is to be pruned, [0.5, 0.8]");
    std::vector<std::string> names;
    for (const Method& method : options_.methods) {
      if (method.name == dense || std::ranges::find(names, method.name) != names.end())
        throw ConfigError("methods: two things are called \"" + method.name + "\"");
      names.push_back(method.name);
    }
    if (options_.quick) {
      options_.seeds = 1;
      options_.ratios.resize(std::min<std::size_t>(2, options_.ratios.size()));
      options_.budget = Duration{20.0, Duration::Unit::steps};
      if (options_.rewind_to) options_.rewind_to = Duration{0.0, Duration::Unit::steps};
    }
    check_rewinding(run);
    for (int seed = 0; seed < options_.seeds; ++seed) waiting_.push_back(dense_trial(seed));
  }

  std::vector<trainyard::StudyStage> stages() const override {
    const auto pruned = static_cast<std::int64_t>(options_.methods.size() * options_.ratios.size());
    return {{"dense", options_.seeds, {}, options_.budget},
            {"pruned", pruned * options_.seeds, {}, options_.budget}};
  }

  std::optional<StudyTrial> next(int /*running*/) override {
    if (given_ == waiting_.size()) return std::nullopt;
    return waiting_[given_++];
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    const auto trial = std::ranges::find(waiting_, outcome.trial, &StudyTrial::name);
    outcomes_[outcome.trial] = outcome;
    if (outcome.end != trainyard::TrialOutcome::End::done) return;  // nothing is made of it
    const std::map<std::string, std::string> labels(trial->labels.begin(), trial->labels.end());
    const int seed = std::stoi(labels.at("seed"));
    if (labels.at("method") == dense) {
      dense_steps_[seed] = outcome.steps;
      const std::size_t stages = options_.mode == CascadeMode::oneshot ? options_.ratios.size() : 1;
      for (const Method& method : options_.methods)
        for (std::size_t stage = 0; stage < stages; ++stage)
          waiting_.push_back(pruned_trial(method, stage, seed));
      return;
    }
    if (options_.mode == CascadeMode::oneshot) return;
    for (std::size_t stage = 1; stage < options_.ratios.size(); ++stage)
      for (const Method& method : options_.methods)
        if (name_of(method.name, stage - 1, seed) == outcome.trial)
          return waiting_.push_back(pruned_trial(method, stage, seed));
  }

  trainyard::StudyResult result() const override;

 private:
  static constexpr const char* dense = "dense";
  static constexpr int other_seeds = 1000000;  ///< of new weights, past those of all dense runs

  std::string name_of(const std::string& method, std::size_t stage, int seed) const {
    const std::string place = method == dense ? "" : studies::key_text(options_.ratios[stage]) + "/";
    return method + "/" + place + std::to_string(seed);
  }

  StudyTrial trial(const std::string& method, std::size_t stage, int seed) const {
    const std::string ratio = method == dense ? "0" : studies::key_text(options_.ratios[stage]);
    std::vector<std::string> set = common.set;
    set.push_back("run.seed=" + std::to_string(seed));
    return {.name = name_of(method, stage, seed),
            .run = common.run,
            .set = std::move(set),
            .until = options_.budget,
            .labels = {{"method", method}, {"ratio", ratio}, {"seed", std::to_string(seed)}},
            .panel = method,
            .series = ratio};
  }

  StudyTrial dense_trial(int seed) const { return trial(dense, 0, seed); }

  /// Of filters the zeros stay in the tensors, so that ratios are shares of the dense network throughout.
  StudyTrial pruned_trial(const Method& method, std::size_t stage, int seed) const {
    StudyTrial made = trial(method.name, stage, seed);
    const bool first = stage == 0 || options_.mode == CascadeMode::oneshot;
    const std::string from = first ? name_of(dense, 0, seed) : name_of(method.name, stage - 1, seed);
    const std::string to = "{runs}/" + made.name + ".pruned";
    std::vector<std::string> words = {
        "prune",       "{runs}/" + from, "--scorer",
        method.scorer, "--ratio",        studies::key_text(options_.ratios[stage]),
        "--cut",       "false",          "--evaluate",
        "false",       "--out",          to};
    if (!method.allocation.empty()) words.insert(words.end(), {"--allocation", method.allocation});
    made.before = {std::move(words)};
    made.start = to + "/model.safetensors";
    if (method.start_from != StartFrom::pruned) begin_anew(made, method.start_from, seed);
    made.set.push_back("transforms=[{ type = \"prune\", ratio = 0.0, zeros = \"all\" }]");
    made.set.insert(made.set.end(), options_.retrain.begin(), options_.retrain.end());
    return made;
  }

  /// Refuses a time to rewind to at which the dense runs keep no checkpoint.
  void check_rewinding(const trainyard::Table& run) {
    const bool rewinds = std::ranges::any_of(
        options_.methods, [](const Method& each) { return each.start_from == StartFrom::rewound; });
    if (rewinds != options_.rewind_to.has_value())
      throw ConfigError(
          rewinds
              ? "methods: start_from = \"rewound\" goes back to rewind_to, which is absent: set it, to "
                "\"2ep\" for example"
              : "rewind_to is of methods with start_from = \"rewound\", of which there are none: add one, "
                "or leave it out");
    if (!options_.rewind_to || options_.rewind_to->count == 0.0) return;
    const Duration to = *options_.rewind_to;
    if ((to.unit != Duration::Unit::epochs && to.unit != Duration::Unit::steps) ||
        std::floor(to.count) != to.count)
      throw ConfigError("rewind_to = \"" + to.text() +
                        "\": give whole epochs (\"2ep\") or steps (\"500ba\")");
    total_ = options_.budget ? options_.budget : duration_in(run, {"trainer", "max_duration"});
    if (!total_ || total_->unit != to.unit || total_->count <= to.count)
      throw ConfigError("rewind_to = \"" + to.text() + "\" is no time of a training of " +
                        (total_ ? "\"" + total_->text() + "\"" : "no length in epochs or steps") +
                        ": give a smaller number in the unit of that length");
    for (const char* const key : {"interval", "keep_every"}) {
      const std::optional<Duration> every = duration_in(run, {"checkpoint", key});
      if (every && every->unit == to.unit && every->count > 0.0 && std::fmod(to.count, every->count) == 0.0)
        continue;
      throw ConfigError("rewind_to = \"" + to.text() +
                        "\": the dense runs keep no checkpoint there, by checkpoint." + key +
                        (every ? " = \"" + every->text() + "\"" : ", which is absent") + ": set it to \"" +
                        to.text() + "\", or to a part of that");
    }
  }

  static std::optional<Duration> duration_in(const trainyard::Table& run, std::array<const char*, 2> place) {
    const trainyard::Value* const table = run.find(place[0]);
    const trainyard::Value* const text =
        table == nullptr ? nullptr : table->as<trainyard::Table>().find(place[1]);
    return text == nullptr ? std::nullopt : Duration::parse(text->as<std::string>());
  }

  /// Has a trial begin with other weights than those of the pruned network, whose zeros they get.
  void begin_anew(StudyTrial& made, StartFrom from, int seed) const {
    const std::string whole = "{runs}/" + name_of(dense, 0, seed), to = "{runs}/" + made.name + ".begin";
    std::vector<std::string> words = {"rewind", whole, "--zeros_of", made.start, "--out", to, "--weights"};
    if (from == StartFrom::random) {
      words.insert(words.end(), {"initial", "--set", "run.seed=" + std::to_string(other_seeds + seed)});
    } else if (options_.rewind_to->count == 0.0) {
      words.emplace_back("initial");
    } else {
      words.insert(words.end(), {checkpoint_of(whole, seed), "--at", options_.rewind_to->text()});
    }
    made.before.push_back(std::move(words));
    made.start = to + "/model.safetensors";
  }

  /// Returns the checkpoint at the time to rewind to.
  std::string checkpoint_of(const std::string& run, int seed) const {
    const double share = options_.rewind_to->count / total_->count;
    std::string number = std::to_string(std::llround(static_cast<double>(dense_steps_.at(seed)) * share));
    number.insert(0, number.size() < 8 ? 8 - number.size() : 0, '0');
    return run + "/checkpoints/step-" + number;
  }

  double value(const std::string& trial) const {
    const auto found = outcomes_.find(trial);
    return found == outcomes_.end() ? studies::nan : studies::value_of(found->second, common.metric);
  }

  /// Returns the metric of each seed that came so far.
  std::vector<double> values(const std::string& method, std::size_t stage) const {
    std::vector<double> all;
    for (int seed = 0; seed < options_.seeds; ++seed)
      if (const double each = value(name_of(method, stage, seed)); !std::isnan(each)) all.push_back(each);
    return all;
  }

  /// Returns the largest of all ratios whose metric is at most `delta` worse than the dense network's; 0 where none is
  /// (section 3.3: one that is worse does not end the search). NaN without a dense network.
  double potential(const std::string& method, int seed) const {
    const double whole = studies::worth(common.goal, value(name_of(dense, 0, seed)));
    if (!std::isfinite(whole)) return studies::nan;
    double most = 0.0;
    for (std::size_t stage = 0; stage < options_.ratios.size(); ++stage)
      if (studies::worth(common.goal, value(name_of(method, stage, seed))) >= whole - options_.delta)
        most = options_.ratios[stage];
    return most;
  }

  Options options_;
  std::vector<StudyTrial> waiting_;  ///< all that were made; the first `given_` are under way or over
  std::size_t given_ = 0;
  std::map<std::string, trainyard::TrialOutcome> outcomes_;
  std::optional<Duration> total_;            ///< length of the dense training
  std::map<int, std::int64_t> dense_steps_;  ///< steps that it took, by seed
};

trainyard::StudyResult Cascade::result() const {
  trainyard::ResultTable metrics{
      .title = common.metric + ", mean over seeds ± 95 %, by the share that is pruned",
      .columns = {"method", "0"},
      .rows = {}};
  trainyard::ResultPlot plot{.title = common.metric, .x_label = "share pruned", .y_label = common.metric};
  for (const double ratio : options_.ratios) metrics.columns.push_back(studies::key_text(ratio));
  trainyard::ResultTable potentials{.title = "prune potential, the largest share at which " + common.metric +
                                             " is at most " + studies::key_text(options_.delta) +
                                             " worse than dense",
                                    .columns = {"method", "mean", "least"},
                                    .rows = {}};
  for (const Method& method : options_.methods) {
    const studies::Interval whole = studies::interval(values(dense, 0));
    std::vector<trainyard::ResultCell> row = {{method.name, {}, {}}, studies::cell(whole)};
    trainyard::ResultPlot::Series series{.name = method.name, .points = {{0.0, whole.mean, 0.0}}};
    for (std::size_t stage = 0; stage < options_.ratios.size(); ++stage) {
      const studies::Interval each = studies::interval(values(method.name, stage));
      row.push_back(studies::cell(each));
      series.points.push_back({options_.ratios[stage], each.mean, std::isnan(each.half) ? 0.0 : each.half});
    }
    metrics.rows.push_back(std::move(row));
    plot.series.push_back(std::move(series));
    std::vector<double> all;
    for (int seed = 0; seed < options_.seeds; ++seed)
      if (const double each = potential(method.name, seed); !std::isnan(each)) all.push_back(each);
    potentials.rows.push_back({{method.name, {}, {}},
                               studies::cell(studies::interval(all)),
                               all.empty() ? trainyard::ResultCell{"-", {}, {}}
                                           : studies::cell({*std::ranges::min_element(all), studies::nan})});
  }
  return {.tables = {std::move(metrics), std::move(potentials)}, .plots = {std::move(plot)}, .best = {}};
}

}  // namespace

TRAINYARD_PLUGIN(Cascade)

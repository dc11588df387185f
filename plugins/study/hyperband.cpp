// Hyperband: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization (JMLR 18, 2018),
// algorithm 1. With R = max_budget / min_budget and s_max = floor(log_eta R), bracket s of s_max, ..., 0 begins with
// n = ceil((s_max + 1) eta^s / (s + 1)) configurations, each trained max_budget eta^-s, and takes the best
// floor(n_i / eta) of each rung to the next. Brackets run side by side where there are places.
//
// With `together`, configurations of a rung are members of one run of the executor hfta. Those that begin in one run stay
// in it: the run goes on with those that are left (executor.only), from its checkpoint.
#include <trainyard/study.hpp>

#include "lib/escapes.hpp"
#include "rungs.hpp"

class Hyperband final : public studies::Rungs {
 public:
  struct Options : RungOptions {
    std::int64_t together = 1;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("hyperband")
        .version("1.1.0")
        .summary(
            "Successive halving in brackets, from many short trials to few long ones; which is right need "
            "not be known.");
    describe_rungs(m);
    m.option(
         "together", &Options::together,
         "so many configurations of a rung, at most, are trained as one run by the executor hfta: they may "
         "differ in [optimizer] and run.seed")
        .range(1, 1024);
  }
  explicit Hyperband(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin(given_options_, resolve);
    check_together();
    const int s_max = halvings();
    std::size_t first = 0;
    for (int s = s_max; s >= 0; --s) {
      const auto parts = static_cast<std::size_t>(s) + 1;
      const std::size_t n = (static_cast<std::size_t>(s_max + 1) * power(s) + parts - 1) / parts;
      Bracket bracket{.s = s};
      for (std::size_t i = 0; i < n; ++i) bracket.going.push_back(first + i);
      bracket.begun = in_parts(bracket.going);
      bracket.runs = bracket.begun;
      first += n;
      brackets_.push_back(std::move(bracket));
    }
  }

  std::vector<trainyard::StudyStage> stages() const override {
    std::vector<trainyard::StudyStage> all;
    for (const Bracket& bracket : brackets_) {
      std::size_t n = 0;
      for (const Numbers& run : bracket.begun) n += run.size();
      for (int rung = 0; rung <= bracket.s; ++rung, n /= static_cast<std::size_t>(given_options_.eta)) {
        std::optional<trainyard::Duration> from;
        if (rung > 0) from = resource(bracket, rung - 1);
        all.push_back({"bracket " + std::to_string(bracket.s) + ", rung " + std::to_string(rung),
                       static_cast<std::int64_t>(std::min(n, bracket.begun.size())), from,
                       resource(bracket, rung)});
      }
    }
    return all;
  }

  std::optional<trainyard::StudyTrial> next(int /*running*/) override {
    for (Bracket& bracket : brackets_)
      if (bracket.given < bracket.runs.size())
        return trial_of(bracket, bracket.runs[bracket.given++], resource(bracket, bracket.rung));
    return std::nullopt;
  }

  void report(const trainyard::TrialOutcome& outcome) override {
    const std::size_t first = std::stoul(outcome.trial);
    const Bracket& bracket = bracket_of(first);
    const Numbers& members = begun_with(bracket, first);
    if (members.size() == 1) return Rungs::report(outcome);
    const Numbers run = *std::ranges::find_if(
        bracket.runs, [&](const Numbers& each) { return &begun_with(bracket, each.front()) == &members; });
    for (const std::size_t number : run) Rungs::report(of_member(outcome, members, number));
  }

 private:
  using Numbers = std::vector<std::size_t>;

  struct Bracket {
    int s = 0;
    int rung = 0;
    Numbers going;               ///< configurations of the rung
    std::vector<Numbers> begun;  ///< those that began in one run, a member each
    std::vector<Numbers> runs;   ///< those of the rung, by their runs
    std::size_t given = 0;       ///< of the runs
    std::vector<Ranked> places;  ///< of those that came to its end
  };

  std::size_t power(int exponent) const {
    std::size_t result = 1;
    for (int i = 0; i < exponent; ++i) result *= static_cast<std::size_t>(given_options_.eta);
    return result;
  }

  trainyard::Duration resource(const Bracket& bracket, int rung) const {
    return budget(options().max_budget.count / static_cast<double>(power(bracket.s - rung)));
  }

  void check_together() const {
    if (given_options_.together == 1) return;
    for (const studies::Dimension& each : given_options_.space)
      if (each.key == "optimizer.type" || !(each.key.starts_with("optimizer.") || each.key == "run.seed"))
        throw trainyard::ConfigError(
            "space: `" + each.key +
            "` cannot differ within a run of several configurations, which have "
            "numbers of [optimizer] and run.seed to themselves: together = 1 trains each by itself");
  }

  /// As few parts as `together` allows, as even as they can be.
  std::vector<Numbers> in_parts(const Numbers& numbers) const {
    const auto most = static_cast<std::size_t>(given_options_.together);
    std::vector<Numbers> parts((numbers.size() + most - 1) / most);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      parts[i * parts.size() / numbers.size()].push_back(numbers[i]);
    return parts;
  }

  const Bracket& bracket_of(std::size_t number) const {
    return *std::ranges::find_if(brackets_,
                                 [&](const Bracket& each) { return number <= each.begun.back().back(); });
  }

  static const Numbers& begun_with(const Bracket& bracket, std::size_t number) {
    return *std::ranges::find_if(bracket.begun, [&](const Numbers& each) { return number <= each.back(); });
  }

  std::string group(std::size_t number) const override { return std::to_string(bracket_of(number).s); }

  /// What the run file of a run of several has in place of an executor.
  std::string executor_of(const Numbers& members, const Numbers& run) const {
    std::string all, only;
    for (std::size_t member = 0; member < members.size(); ++member) {
      std::string set;
      for (const std::string& change : studies::changes(point(members[member])))
        set += (set.empty() ? "" : ", ") + trainyard::lib::toml_string(change);
      all += (all.empty() ? "{ set = [" : ", { set = [") + set + "] }";
      if (std::ranges::find(run, members[member]) != run.end())
        only += (only.empty() ? "" : ", ") + std::to_string(member);
    }
    const auto leader = std::ranges::find(members, run.front()) - members.begin();
    return "executor={ type = \"hfta\", leader = " + std::to_string(leader) + ", only = [" + only +
           "], members = [" + all + "] }";
  }

  /// A run of configurations; its name is that of all who began in it.
  trainyard::StudyTrial trial_of(const Bracket& bracket, const Numbers& run,
                                 const trainyard::Duration& until) const {
    const Numbers& members = begun_with(bracket, run.front());
    if (members.size() == 1) return trial(run.front(), until);
    trainyard::StudyTrial result = unchanged(members.front(), until);
    result.name += "-" + studies::number_name(members.back());
    result.panel.clear();  // curves in the study's picture are of one configuration each
    result.series.clear();
    for (std::size_t key = 0; key < result.labels.size(); ++key) {
      std::string& values = result.labels[key].second;
      values.clear();
      for (const std::size_t number : run) values += (values.empty() ? "" : " ") + point(number)[key].second;
    }
    result.set.push_back(executor_of(members, run));
    return result;
  }

  /// What came of a member: metrics of a run of several begin with its number, and one whose numbers were not finite has
  /// none.
  trainyard::TrialOutcome of_member(const trainyard::TrialOutcome& run, const Numbers& members,
                                    std::size_t number) const {
    trainyard::TrialOutcome own = run;
    own.trial = studies::number_name(number);
    own.metrics.clear();
    const std::string prefix = std::to_string(std::ranges::find(members, number) - members.begin()) + "/";
    for (const auto& [name, value] : run.metrics)
      if (name.starts_with(prefix)) own.metrics[name.substr(prefix.size())] = value;
    using End = trainyard::TrialOutcome::End;
    if (own.end == End::done && !own.metrics.contains(common.metric)) own.end = End::diverged;
    return own;
  }

  void over(std::size_t number, const Ranked& place) override {
    auto& bracket = const_cast<Bracket&>(bracket_of(number));
    bracket.places.push_back(place);
    if (bracket.places.size() < bracket.going.size()) return;
    const std::size_t count = bracket.going.size() / static_cast<std::size_t>(given_options_.eta);
    Numbers on;
    if (bracket.rung < bracket.s)
      for (const Ranked& each : top(bracket.places, count)) on.push_back(each.number);
    bracket.going = std::move(on);
    bracket.runs.clear();
    bracket.given = 0;
    bracket.places.clear();
    ++bracket.rung;
    for (const std::size_t each : bracket.going) {
      const auto run = std::ranges::find_if(bracket.runs, [&](const Numbers& known) {
        return &begun_with(bracket, known.front()) == &begun_with(bracket, each);
      });
      if (run != bracket.runs.end())
        run->push_back(each);
      else
        bracket.runs.push_back({each});
    }
  }

  Options given_options_;
  std::vector<Bracket> brackets_;
};
TRAINYARD_PLUGIN(Hyperband)

// BOSS: Huang et al. (MLSys 2022). Brackets as Hyperband has them, from many short trials to few long ones; the
// configurations of a bracket are proposed by a model (TPE, tpe.hpp) of what was observed so far at the least budget of the
// bracket, and sub-sampling (rounds.hpp) decides who of them goes on.
#include <trainyard/study.hpp>

#include "observed.hpp"
#include "tpe.hpp"

enum class Inner : std::uint8_t { ss, modified_ss };
template <>
struct trainyard::Words<Inner> {
  static constexpr std::string_view words[] = {"ss", "modified_ss"};
};

class Boss final : public studies::Observed {
 public:
  struct Options : ObservedOptions {
    Inner inner = Inner::modified_ss;
    studies::Comparison compare = studies::Comparison::window_mean;
    int repeat = 1;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("boss").version("1.0.0").summary(
        "Brackets of sub-sampling, whose configurations are proposed by a model of what was observed "
        "before.");
    describe_observed(m);
    m.option("inner", &Options::inner,
             "who goes on in a bracket: as the study `modified_ss` has it, or `ss`");
    m.option("compare", &Options::compare, "of inner = \"ss\": as there");
    m.option("repeat", &Options::repeat,
             "how often the brackets are gone through, with what the model has seen before")
        .min(1);
  }
  explicit Boss(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin_observed(given_options_, resolve);
    const int s_max = halvings();
    std::size_t shrunk = 1;
    for (int s = 0; s <= s_max; ++s, shrunk *= static_cast<std::size_t>(given_options_.eta)) {
      const auto parts = static_cast<std::size_t>(s) + 1;
      const std::size_t count = (static_cast<std::size_t>(s_max + 1) * shrunk + parts - 1) / parts;
      studies::Budgets budgets = this->budgets();
      budgets.least = std::max<std::size_t>(1, budgets.most / shrunk);
      brackets_.insert(brackets_.begin(), {s, count, budgets});
    }
    const std::vector<Bracket> once = brackets_;
    for (int i = 1; i < given_options_.repeat; ++i)
      brackets_.insert(brackets_.end(), once.begin(), once.end());
  }

 private:
  struct Bracket {
    int s = 0;
    std::size_t count = 0;  ///< of configurations
    studies::Budgets budgets;
  };

  std::vector<studies::Stretch> following() override {
    while (true) {
      if (rounds_)
        if (std::vector<studies::Stretch> next = rounds_->next(histories()); !next.empty()) return next;
      if (begun_ == brackets_.size()) return {};
      const Bracket& bracket = brackets_[begun_];
      rounds_ = rounds_of(bracket, propose(bracket));
      ++begun_;
    }
  }

  std::vector<studies::Stretch> left() const override {
    std::vector<studies::Stretch> all;
    if (rounds_) all = rounds_->left();
    for (std::size_t i = begun_; i < brackets_.size(); ++i)
      std::ranges::copy(rounds_of(brackets_[i], std::vector<std::size_t>(brackets_[i].count))->left(),
                        std::back_inserter(all));
    return all;
  }

  std::unique_ptr<studies::Rounds> rounds_of(const Bracket& bracket, std::vector<std::size_t> numbers) const {
    if (given_options_.inner == Inner::modified_ss)
      return std::make_unique<studies::FixedWidthRounds>(std::move(numbers), bracket.budgets);
    return std::make_unique<studies::SubSamplingRounds>(std::move(numbers), bracket.budgets,
                                                        given_options_.compare,
                                                        random(static_cast<std::size_t>(bracket.s)));
  }

  /// Draws configurations by the model, and returns their numbers.
  std::vector<std::size_t> propose(const Bracket& bracket) {
    std::vector<studies::Knob> knobs;
    for (const studies::Dimension& each : given_options_.space) knobs.push_back(each.knob());
    studies::Tpe model(std::move(knobs),
                       {static_cast<std::uint64_t>(given_options_.seed), "study/boss", begun_});
    for (const auto& [number, history] : histories())
      if (!history.fit)
        model.add(values_[number], std::numeric_limits<double>::infinity());
      else if (history.worths.size() >= bracket.budgets.least)
        model.add(values_[number], -history.worths[bracket.budgets.least - 1]);
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < bracket.count; ++i) {
      numbers.push_back(values_.size());
      values_.push_back(model.propose());
    }
    return numbers;
  }

  studies::Point point(std::size_t number) const override {
    if (number >= values_.size())
      return Observed::point(number);  // of none that was proposed: as one may look
    studies::Point point;
    for (std::size_t i = 0; i < given_options_.space.size(); ++i)
      point.emplace_back(given_options_.space[i].key, given_options_.space[i].text(values_[number][i]));
    return point;
  }

  std::string group(std::size_t number) const override {
    std::size_t after = 0;
    for (const Bracket& each : brackets_)
      if (number < (after += each.count)) return std::to_string(each.s);
    return "";
  }

  Options given_options_;
  std::vector<Bracket> brackets_;
  std::size_t begun_ = 0;                ///< of the brackets
  std::vector<studies::Values> values_;  ///< of configurations, by number
};
TRAINYARD_PLUGIN(Boss)

// Hyperband: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization (JMLR 18, 2018),
// algorithm 1. With R = max_budget / min_budget and s_max = floor(log_eta R), bracket s of s_max, ..., 0 begins with
// n = ceil((s_max + 1) eta^s / (s + 1)) configurations, each trained max_budget eta^-s, and takes the best
// floor(n_i / eta) of each rung to the next. Brackets run side by side where there are places.
#include <trainyard/study.hpp>

#include "rungs.hpp"

class Hyperband final : public studies::Rungs {
 public:
  struct Options : RungOptions {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("hyperband")
        .version("1.0.0")
        .summary(
            "Successive halving in brackets, from many short trials to few long ones; which is right need "
            "not be known.");
    describe_rungs(m);
  }
  explicit Hyperband(const Options& options) : given_options_(options) {}

  void open(const Resolve& resolve) override {
    begin(given_options_, resolve);
    const int s_max = halvings();
    std::size_t first = 0;
    for (int s = s_max; s >= 0; --s) {
      const auto parts = static_cast<std::size_t>(s) + 1;
      const std::size_t n = (static_cast<std::size_t>(s_max + 1) * power(s) + parts - 1) / parts;
      Bracket bracket{.s = s, .first = first, .count = n};
      for (std::size_t i = 0; i < n; ++i) bracket.going.push_back(first + i);
      first += n;
      brackets_.push_back(std::move(bracket));
    }
  }

  std::vector<trainyard::StudyStage> stages() const override {
    std::vector<trainyard::StudyStage> all;
    for (const Bracket& bracket : brackets_) {
      std::size_t n = bracket.count;
      for (int rung = 0; rung <= bracket.s; ++rung, n /= static_cast<std::size_t>(given_options_.eta)) {
        std::optional<trainyard::Duration> from;
        if (rung > 0) from = resource(bracket, rung - 1);
        all.push_back({"bracket " + std::to_string(bracket.s) + ", rung " + std::to_string(rung),
                       static_cast<std::int64_t>(n), from, resource(bracket, rung)});
      }
    }
    return all;
  }

  std::optional<trainyard::StudyTrial> next(int /*running*/) override {
    for (Bracket& bracket : brackets_)
      if (bracket.given < bracket.going.size())
        return trial(bracket.going[bracket.given++], resource(bracket, bracket.rung));
    return std::nullopt;
  }

 private:
  struct Bracket {
    int s = 0;
    std::size_t first = 0, count = 0;  ///< numbers of its configurations
    int rung = 0;
    std::vector<std::size_t> going;  ///< those of the rung
    std::size_t given = 0;           ///< of them
    std::vector<Place> places;       ///< of those that came to its end
  };

  std::size_t power(int exponent) const {
    std::size_t result = 1;
    for (int i = 0; i < exponent; ++i) result *= static_cast<std::size_t>(given_options_.eta);
    return result;
  }

  trainyard::Duration resource(const Bracket& bracket, int rung) const {
    return budget(options().max_budget.count / static_cast<double>(power(bracket.s - rung)));
  }

  const Bracket& bracket_of(std::size_t number) const {
    return *std::ranges::find_if(brackets_,
                                 [&](const Bracket& each) { return number < each.first + each.count; });
  }

  std::string group(std::size_t number) const override { return std::to_string(bracket_of(number).s); }

  void over(std::size_t number, const Place& place) override {
    auto& bracket = const_cast<Bracket&>(bracket_of(number));
    bracket.places.push_back(place);
    if (bracket.places.size() < bracket.going.size()) return;
    const std::size_t count = bracket.going.size() / static_cast<std::size_t>(given_options_.eta);
    std::vector<std::size_t> on;
    if (bracket.rung < bracket.s)
      for (const Place& each : top(bracket.places, count)) on.push_back(each.number);
    bracket.going = std::move(on);
    bracket.given = 0;
    bracket.places.clear();
    ++bracket.rung;
  }

  Options given_options_;
  std::vector<Bracket> brackets_;
};
TRAINYARD_PLUGIN(Hyperband)

// BlendSearch: Wang, Wu, Huang and Saied, "Economical Hyperparameter Optimization With Blended Search Strategy", ICLR 2021:
// local searches by short steps, as those of cfo, which begin at a cheap point and where a global search found something
// good (blend_search.hpp).
#include <cstdint>
#include <optional>
#include <utility>

#include <trainyard/study.hpp>

#include "blend_search.hpp"
#include "cost.hpp"
#include "guided.hpp"

class Blendsearch final : public studies::Guided {
 public:
  struct Options : GuidedOptions {
    studies::Cost cost = studies::Cost::wall;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("blendsearch")
        .version("1.0.0")
        .summary(
            "A global search, and local ones from where it found something good, by what each gains for its "
            "cost.");
    describe_guided(m);
    m.option("cost", &Options::cost, studies::cost_help);
  }
  explicit Blendsearch(const Options& options) : Guided(options), cost_(options.cost) {}

 private:
  void begin_at(std::vector<studies::Knob> knobs, studies::Values start, std::uint64_t seed) override {
    search_.emplace(std::move(knobs), std::move(start), seed);
  }
  /// The cost that is left is that of as many trials as are left, as they were up to now.
  std::optional<studies::Values> propose(int running) override {
    if (running > 0 && reported_ == 0) return std::nullopt;  // all others go by the first one
    return search_->next(running, reported_ == 0 ? 0.0 : spent_ / reported_ * left());
  }
  void learn(const studies::Values& values, double error, const trainyard::TrialOutcome& outcome) override {
    search_->report(values, error, spent_on(outcome));
  }
  void know(const studies::Values& values, double error, const trainyard::TrialOutcome& outcome) override {
    search_->know(values, error, spent_on(outcome));
  }

  double spent_on(const trainyard::TrialOutcome& outcome) {
    const double cost = studies::cost_of(outcome, cost_);
    spent_ += cost;
    ++reported_;
    return cost;
  }

  studies::Cost cost_;
  double spent_ = 0.0;
  int reported_ = 0;
  std::optional<studies::BlendSearch> search_;
};
TRAINYARD_PLUGIN(Blendsearch)

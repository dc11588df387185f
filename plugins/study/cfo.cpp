// Cost-frugal optimization (CFO): Wu, Wang and Huang, "Frugal Optimization for Cost-related Hyperparameters", AAAI 2021.
// It begins at a cheap point and moves by FLOW2 (flow2.hpp) in short steps, so that trials become dearer only where that
// is worth it. Where it has converged it begins anew near the first point.
#include <optional>
#include <utility>

#include <trainyard/study.hpp>

#include "frugal_search.hpp"
#include "guided.hpp"

class Cfo final : public studies::Guided {
 public:
  struct Options : GuidedOptions {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("cfo").version("1.0.0").summary(
        "Local search from a cheap point, by short steps in random directions, each trial in full.");
    describe_guided(m);
  }
  explicit Cfo(const Options& options) : Guided(options) {}

 private:
  void begin_at(std::vector<studies::Knob> knobs, studies::Values start, std::uint64_t seed) override {
    search_.emplace(std::move(knobs), std::move(start), seed);
  }
  std::optional<studies::Values> propose(int running) override { return search_->next(running); }
  void learn(const studies::Values& values, double error, const trainyard::TrialOutcome&) override {
    search_->report(values, error);
  }
  void know(const studies::Values& values, double error, const trainyard::TrialOutcome&) override {
    search_->know(values, error);
  }

  std::optional<studies::FrugalSearch> search_;
};
TRAINYARD_PLUGIN(Cfo)

// Ends a training once `patience` evaluations in a row have brought no value that is better than the best so
// far by more than `min_delta`: the rule of section 7.8 of Goodfellow, Bengio and Courville, Deep Learning
// (2016), algorithm 7.1, without its return to the best weights, which checkpoint.keep_best has kept.
#include <limits>
#include <string>

#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class EarlyStopping final : public Hook {
 public:
  struct Options {
    std::string metric;
    std::string mode;
    std::int64_t patience = 5;
    double min_delta = 0.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("early_stopping").version("1.0.0").summary("Ends a training that no longer improves.");
    m.option("metric", &Options::metric, "\"val/loss\" or \"val/\" and the id of a metric")
        .metric()
        .also({"monitor"})
        .required();
    m.option("mode", &Options::mode, "whether lower or higher is better").one_of({"min", "max"}).required();
    m.option("patience", &Options::patience, "evaluations without improvement before the end").range(1, 1e6);
    m.option("min_delta", &Options::min_delta, "smallest change that is an improvement").min(0.0);
    m.hook<&EarlyStopping::evaluated>(Event::eval_end).writes(Region::control);
    // Its mind may be another one with the options or the state that it has now.
    m.hook<&EarlyStopping::decide>(Event::after_load).writes(Region::control);
    m.hook<&EarlyStopping::decide>(Event::swap_in).writes(Region::control);
  }
  explicit EarlyStopping(const Options& options) : options_(options) {}

  void evaluated(StepContext& context) {
    if (!options_.metric.starts_with(std::string(context.split()) + "/")) return;
    const auto found = context.metrics().find(options_.metric);
    if (found == context.metrics().end()) return;  // a signal cut the evaluation short
    const double value = sign() * found->second;
    if (value > best_ + options_.min_delta) {  // NaN is not
      best_ = value;
      without_gain_ = 0;
    } else {
      ++without_gain_;
    }
    decide(context);
  }

  void decide(StepContext& context) {
    const Clock& clock = context.clock();
    const bool over = clock.total_steps > 0 && clock.step >= clock.total_steps;  // as long as it was to be
    if (without_gain_ < options_.patience || over) return context.withdraw(Control::stop_run);
    context.request(Control::stop_run, options_.metric + " did not improve on " +
                                           std::to_string(sign() * best_) + " for " +
                                           std::to_string(without_gain_) + " evaluations");
  }

  void save(StateWriter& state) const override {
    state.scalar("watched", watched());
    state.scalar("best", best_);
    state.scalar("evaluations_without_gain", without_gain_);
  }
  /// The best of another metric says nothing.
  void load(const StateReader& state) override {
    const bool same = state.text("watched") == watched();
    best_ = same ? state.number("best") : -infinity;
    without_gain_ = same ? state.integer("evaluations_without_gain") : 0;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  double sign() const { return options_.mode == "max" ? 1.0 : -1.0; }
  std::string watched() const { return options_.mode + " " + options_.metric; }

  Options options_;
  double best_ = -infinity;  ///< times the sign, such that more is better
  std::int64_t without_gain_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(EarlyStopping)

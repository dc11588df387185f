// Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates",
// 2018 (arXiv 1708.07120), as torch's OneCycleLR computes it: with T the budget, up from 1 / div_factor to 1
// at step pct_start T - 1, down to 1 / (div_factor final_div_factor) at its last, T - 1. In three phases down
// to 1 / div_factor at 2 pct_start T - 2 first. The base learning rate is the highest. The momentum goes the
// other way.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class OneCycle final : public Schedule {
 public:
  struct Options {
    double pct_start = 0.3;
    double div_factor = 25.0;
    double final_div_factor = 1e4;
    std::string anneal = "cosine";
    bool three_phase = false;
    bool cycle_momentum = true;
    double base_momentum = 0.85;
    double max_momentum = 0.95;
  };
  static void describe(Manifest<Options>& m) {
    m.name("one_cycle").version("1.0.0").summary("Up to 1 and down to almost 0, the momentum the other way.");
    m.needs("steps");
    m.option("pct_start", &Options::pct_start, "share of the budget on the way up").range(0.0, 1.0);
    m.option("div_factor", &Options::div_factor, "the highest factor, 1, over the first").min(1.0);
    m.option("final_div_factor", &Options::final_div_factor, "the first factor over the last").min(1.0);
    m.option("anneal", &Options::anneal, "the ways up and down").one_of({"cosine", "linear"});
    m.option("three_phase", &Options::three_phase, "down as long as up, then to the last factor");
    m.option("cycle_momentum", &Options::cycle_momentum, "the optimizer must have one");
    m.option("base_momentum", &Options::base_momentum, "where the factor is 1").min(0.0).below(1.0);
    m.option("max_momentum", &Options::max_momentum, "where the factor is low").min(0.0).below(1.0);
  }
  explicit OneCycle(const Options& options) : options_(options), linear_(options.anneal == "linear") {}

  double factor(const SchedulePoint& at) const override {
    const double first = 1.0 / options_.div_factor;
    return read(at, first, 1.0, first, first / options_.final_div_factor);
  }
  std::optional<double> momentum(const SchedulePoint& at) const override {
    if (!options_.cycle_momentum) return std::nullopt;
    const double low = options_.base_momentum, high = options_.max_momentum;
    return read(at, high, low, high, high);
  }

 private:
  /// Between the values at the ends of the phases; `middle` is one in three phases only.
  double read(const SchedulePoint& at, double first, double peak, double middle, double last) const {
    const double step = static_cast<double>(at.step), steps = static_cast<double>(at.steps);
    const double up = options_.pct_start * steps - 1.0, down = 2.0 * options_.pct_start * steps - 2.0;
    if (step <= up) return between(first, peak, share(step, up));
    if (options_.three_phase && step <= down) return between(peak, middle, share(step - up, down - up));
    const double from = options_.three_phase ? down : up;
    return between(options_.three_phase ? middle : peak, last, share(step - from, steps - 1.0 - from));
  }
  double between(double from, double to, const Share& share) const {
    return to + (from - to) * (linear_ ? share.left : half_cosine(share));
  }

  Options options_;
  bool linear_;
};

}  // namespace

TRAINYARD_PLUGIN(OneCycle)

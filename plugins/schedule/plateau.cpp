// torch's ReduceLROnPlateau: after `patience` evaluations in a row that are no better, and one more, the
// factor falls. The only schedule with state; it counts evaluations, never steps.
#include <algorithm>
#include <cmath>
#include <limits>

#include <trainyard/context.hpp>
#include <trainyard/host.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class Plateau final : public Schedule {
 public:
  struct Options {
    std::string metric = "val/loss";
    std::string mode = "min";
    double factor = 0.1;
    std::int64_t patience = 10;
    double threshold = 1e-4;
    std::string threshold_mode = "relative";
    std::int64_t cooldown = 0;
    double min_factor = 0.0;
    double eps = 1e-8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("plateau").version("1.0.0").summary("Falls where a metric of the evaluations stops to improve.");
    m.option("metric", &Options::metric, "what is to improve, a value of an evaluation");
    m.option("mode", &Options::mode, "which way it improves").one_of({"min", "max"});
    m.option("factor", &Options::factor, "factor of a fall").min(0.0).below(1.0);
    m.option("patience", &Options::patience, "evaluations without gain that are let pass").min(0);
    m.option("threshold", &Options::threshold, "least gain that counts").min(0.0);
    m.option("threshold_mode", &Options::threshold_mode, "whether the gain is a share of the best")
        .one_of({"relative", "absolute"});
    m.option("cooldown", &Options::cooldown, "evaluations after a fall that do not count").min(0);
    m.option("min_factor", &Options::min_factor, "lowest factor").range(0.0, 1.0);
    m.option("eps", &Options::eps, "a fall of the factor by no more than this is left out").min(0.0);
    m.hook<&Plateau::evaluated>(Event::eval_end);
  }
  explicit Plateau(const Options& options)
      : options_(options), maximize_(options.mode == "max"), best_(maximize_ ? -infinity : infinity) {}

  double factor(const SchedulePoint&) const override { return after(falls_); }

  void evaluated(StepContext& context) {
    const std::int64_t step = context.clock().step;
    if (step == last_step_) return;  // another split of the same evaluation
    const double value = context.metric(options_.metric);
    if (std::isnan(value))
      return host().log(LogLevel::warning, "schedule.metric = \"" + options_.metric +
                                               "\" has no value after step " + std::to_string(step) +
                                               ": this evaluation is not counted");
    last_step_ = step;
    observe(value);
  }

  void save(StateWriter& state) const override {
    state.scalar("best", best_);
    state.scalar("bad", bad_);
    state.scalar("cooldown_left", cooldown_left_);
    state.scalar("falls", falls_);
    state.scalar("last_step", last_step_);
  }
  void load(const StateReader& state) override {
    best_ = state.number("best");
    bad_ = state.integer("bad");
    cooldown_left_ = state.integer("cooldown_left");
    falls_ = state.integer("falls");
    last_step_ = state.integer("last_step");
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  double after(std::int64_t falls) const {
    return std::max(options_.min_factor, std::pow(options_.factor, static_cast<double>(falls)));
  }
  bool better(double value) const {
    const double gain = options_.threshold_mode == "absolute" ? options_.threshold
                        : std::isinf(best_)                   ? 0.0
                                                              : best_ * options_.threshold;
    return maximize_ ? value > best_ + gain : value < best_ - gain;
  }
  void observe(double value) {
    if (better(value)) {
      best_ = value;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      bad_ = 0;
    }
    if (bad_ <= options_.patience) return;
    cooldown_left_ = options_.cooldown;
    bad_ = 0;
    if (after(falls_) - after(falls_ + 1) > options_.eps) ++falls_;
  }

  Options options_;
  bool maximize_;
  double best_;
  std::int64_t bad_ = 0, cooldown_left_ = 0, falls_ = 0, last_step_ = -1;
};

}  // namespace

TRAINYARD_PLUGIN(Plateau)

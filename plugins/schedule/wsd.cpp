// Warm-up, stable, decay: Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models with Scalable
// Training Strategies", 2024 (arXiv 2404.06395), section 4.2; the way down 1 - sqrt(u) is of Haegele et al.,
// 2024 (arXiv 2405.18392), section 4. The warm-up is the operator `warmup`, the end the operator `floor`.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

double linear(const Share& share) {
  return share.left;
}
/// 1 - sqrt(u) without its cancellation.
double root(const Share& share) {
  return share.left / (1.0 + std::sqrt(share.done));
}

class Wsd final : public Schedule {
 public:
  struct Options {
    Duration decay{20, Duration::Unit::percent};
    std::string curve = "1-sqrt";
  };
  static void describe(Manifest<Options>& m) {
    m.name("wsd").version("1.0.0").summary("Stays at 1, then falls to 0 at the end of the budget.");
    m.needs("steps");
    m.option("decay", &Options::decay, "length of the fall");
    m.option("curve", &Options::curve, "the way down").one_of({"1-sqrt", "linear", "cosine"});
  }
  explicit Wsd(const Options& options)
      : options_(options),
        curve_(options.curve == "cosine"   ? half_cosine
               : options.curve == "linear" ? linear
                                           : root) {}

  void open(const RunScale& scale) override {
    decay_ = schedule_steps("decay", options_.decay, scale);
    if (decay_ > scale.total_steps)
      throw ConfigError("schedule.decay = \"" + options_.decay.text() + "\" (" + std::to_string(decay_) +
                        " steps) exceeds the " + std::to_string(scale.total_steps) +
                        " steps that the schedule has; shorten it");
  }
  double factor(const SchedulePoint& at) const override {
    const std::int64_t into = at.step - (at.steps - decay_);
    return into <= 0 && at.step < at.steps
               ? 1.0
               : curve_(share(static_cast<double>(into), static_cast<double>(decay_)));
  }

 private:
  Options options_;
  double (*curve_)(const Share&);
  std::int64_t decay_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Wsd)

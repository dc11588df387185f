// Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5
// without restarts, relative to the base learning rate. Past its length it stays at the end; torch's
// CosineAnnealingLR climbs again.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Cosine final : public Schedule {
 public:
  struct Options {
    double min_factor = 0.0;
    std::optional<Duration> length;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cosine").version("1.1.0").summary("Half a cosine from 1 to min_factor over the budget.");
    m.needs("steps");
    m.option("min_factor", &Options::min_factor, "lowest learning-rate factor").range(0.0, 1.0);
    m.option("length", &Options::length, "when the lowest is reached; by default the end of the budget");
  }
  explicit Cosine(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { length_ = schedule_steps("length", options_.length, scale); }
  double factor(const SchedulePoint& at) const override {
    return options_.min_factor + (1.0 - options_.min_factor) * half_cosine(share(at, length_));
  }

 private:
  Options options_;
  std::optional<std::int64_t> length_;
};

}  // namespace

TRAINYARD_PLUGIN(Cosine)

#include <cmath>
#include <numbers>

#include <trainyard/schedule.hpp>

/// SGDR without restarts (Loshchilov and Hutter 2017, equation 5), relative to the base learning rate.
class Cosine final : public trainyard::Schedule {
 public:
  struct Options {
    double min_factor = 0.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("cosine").version("1.0.0").summary("Half a cosine from 1 to min_factor over the budget.");
    m.needs("steps");
    m.option("min_factor", &Options::min_factor, "lowest learning-rate factor").range(0.0, 1.0);
  }
  explicit Cosine(const Options& options) : options_(options) {}

  double factor(const trainyard::SchedulePoint& at) const override {
    return options_.min_factor +
           (1.0 - options_.min_factor) * 0.5 * (1.0 + std::cos(std::numbers::pi * at.progress));
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(Cosine)

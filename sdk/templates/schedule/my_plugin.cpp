#include <cmath>

#include <trainyard/schedule.hpp>

/// The learning rate falls as a power of what is left of the budget.
class MyPlugin final : public trainyard::Schedule {
 public:
  struct Options {
    double power = 2.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("A power of the part of the budget that is left.");
    m.option("power", &Options::power, "exponent: 1 is a straight line, more falls faster").above(0.0);
    m.needs("steps");  // it moves: the budget has to be known in steps
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  double factor(const trainyard::SchedulePoint& at) const override {
    return std::pow(1.0 - at.progress, options_.power);
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)

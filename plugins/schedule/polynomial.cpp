// torch's PolynomialLR: (1 - min(t, length) / length)^power.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Polynomial final : public Schedule {
 public:
  struct Options {
    double power = 1.0;
    std::optional<Duration> length;
  };
  static void describe(Manifest<Options>& m) {
    m.name("polynomial").version("1.0.0").summary("A power of what is left of the budget.");
    m.needs("steps");
    m.option("power", &Options::power, "the power: 1 a line, above 1 a fast fall first").above(0.0);
    m.option("length", &Options::length, "when 0 is reached; by default the end of the budget");
  }
  explicit Polynomial(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { length_ = schedule_steps("length", options_.length, scale); }
  double factor(const SchedulePoint& at) const override {
    return std::pow(share(at, length_).left, options_.power);
  }

 private:
  Options options_;
  std::optional<std::int64_t> length_;
};

}  // namespace

TRAINYARD_PLUGIN(Polynomial)

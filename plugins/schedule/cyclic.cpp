// Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017 (arXiv 1506.01186), section 3, as
// torch's CyclicLR computes it: in each cycle of up + down steps from low_factor to low_factor + height and
// back. The height is 1 - low_factor, halved with each cycle in triangular2, times gamma^t in exp_range. The
// base learning rate is the highest. The momentum goes the other way.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Cyclic final : public Schedule {
 public:
  struct Options {
    double low_factor = 0.1;
    Duration up{2000, Duration::Unit::steps};
    std::optional<Duration> down;
    std::string mode = "triangular";
    double gamma = 1.0;
    bool cycle_momentum = true;
    double base_momentum = 0.8;
    double max_momentum = 0.9;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cyclic").version("1.0.0").summary("Up and down in lines, the momentum the other way.");
    m.option("low_factor", &Options::low_factor, "the lowest factor").range(0.0, 1.0);
    m.option("up", &Options::up, "length of the way up");
    m.option("down", &Options::down, "length of the way down; by default that of the way up");
    m.option("mode", &Options::mode, "how the height goes on")
        .one_of({"triangular", "triangular2", "exp_range"});
    m.option("gamma", &Options::gamma, "of exp_range: factor on the height at each step").above(0.0).max(1.0);
    m.option("cycle_momentum", &Options::cycle_momentum, "the optimizer must have one");
    m.option("base_momentum", &Options::base_momentum, "lowest momentum").min(0.0).below(1.0);
    m.option("max_momentum", &Options::max_momentum, "highest momentum").min(0.0).below(1.0);
  }
  explicit Cyclic(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override {
    up_ = schedule_period("up", options_.up, scale);
    down_ = options_.down ? schedule_period("down", *options_.down, scale) : up_;
  }
  double factor(const SchedulePoint& at) const override {
    return options_.low_factor + (1.0 - options_.low_factor) * height(at);
  }
  std::optional<double> momentum(const SchedulePoint& at) const override {
    if (!options_.cycle_momentum) return std::nullopt;
    return options_.max_momentum - (options_.max_momentum - options_.base_momentum) * height(at);
  }

 private:
  double height(const SchedulePoint& at) const {
    const std::int64_t cycle = at.step / (up_ + down_), step = at.step % (up_ + down_);
    const double way = step <= up_ ? static_cast<double>(step) / static_cast<double>(up_)
                                   : static_cast<double>(up_ + down_ - step) / static_cast<double>(down_);
    if (options_.mode == "triangular2") return way * std::exp2(-static_cast<double>(cycle));
    if (options_.mode == "exp_range") return way * std::pow(options_.gamma, static_cast<double>(at.step));
    return way;
  }

  Options options_;
  std::int64_t up_ = 1, down_ = 1;
};

}  // namespace

TRAINYARD_PLUGIN(Cyclic)

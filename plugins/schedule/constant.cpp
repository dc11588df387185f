// With a length it is torch's ConstantLR.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Constant final : public Schedule {
 public:
  struct Options {
    double value = 1.0;
    std::optional<Duration> length;
  };
  static void describe(Manifest<Options>& m) {
    m.name("constant").version("1.1.0").summary("The same factor for the whole budget, or for a first part.");
    m.option("value", &Options::value, "the factor").min(0.0);
    m.option("length", &Options::length, "how long it holds, 1 after that; by default all the time");
  }
  explicit Constant(const Options& options) : options_(options) {}

  void open(const RunScale& scale) override { length_ = schedule_steps("length", options_.length, scale); }
  double factor(const SchedulePoint& at) const override {
    return length_ && at.step >= *length_ ? 1.0 : options_.value;
  }

 private:
  Options options_;
  std::optional<std::int64_t> length_;
};

}  // namespace

TRAINYARD_PLUGIN(Constant)

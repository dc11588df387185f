#include <trainyard/schedule.hpp>

class Constant final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("constant").version("1.0.0").summary("Always VALUE: tells two builds of one plugin apart.");
  }
  explicit Constant(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return VALUE; }
};
TRAINYARD_PLUGIN(Constant)

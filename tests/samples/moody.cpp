// Describes itself by the environment, so that the sealed manifest need not be the live one.
#include <cstdlib>
#include <trainyard/schedule.hpp>

class Moody final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("moody").version("1.0.0").summary(std::getenv("TRAINYARD_TEST_MOOD") ? "A bad day."
                                                                                : "A good day.");
  }
  explicit Moody(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return 1.0; }
};
TRAINYARD_PLUGIN(Moody)

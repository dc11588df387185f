// Caught by determinism.again: the rate depends on the time of day.
#include <chrono>

#include <trainyard/schedule.hpp>

using namespace trainyard;

class Clockwise final : public Schedule {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("clockwise").version("1.0.0").summary("A plugin with a mistake.");
  }
  explicit Clockwise(const Options&) {}

  double factor(const SchedulePoint&) const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return 0.5 + static_cast<double>(now.count() % 1000) * 1e-4;
  }
};
TRAINYARD_PLUGIN(Clockwise)

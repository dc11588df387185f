// P8: code that runs as soon as the object is opened.
#include <cstdlib>
#include <trainyard/schedule.hpp>

__attribute__((constructor)) static void opened() {
  ::setenv("TRAINYARD_TEST_OPENED", "1", 1);
}

class Constructor final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("constructor").version("1.0.0").summary("Leaves a trace when it is opened.");
  }
  explicit Constructor(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return 1.0; }
};
TRAINYARD_PLUGIN(Constructor)

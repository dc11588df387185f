// P10: a function of the same name stands in another object of global scope (helper.cpp).
#include <trainyard/schedule.hpp>

extern "C" __attribute__((noinline)) int trainyard_test_helper() {
  asm volatile("");
  return 2;
}

class Collision final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("collision").version("1.0.0").summary("Calls a function whose name stands in the process twice.");
  }
  explicit Collision(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return trainyard_test_helper(); }
};
TRAINYARD_PLUGIN(Collision)

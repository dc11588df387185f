// P1, P11: an inline static is bound as GNU_UNIQUE unless the build forbids it. And a variable of each
// thread, whose program header objcopy writes anew.
#include <trainyard/schedule.hpp>

template <class T>
struct Shared {
  inline static int calls = 0;
};
thread_local int calls_of_thread = 0;

class Counter final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("counter").version("1.0.0").summary("Counts its calls in a static.");
  }
  explicit Counter(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override {
    return calls_of_thread = ++Shared<int>::calls;
  }
};
TRAINYARD_PLUGIN(Counter)

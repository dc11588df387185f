// P1, P11: an inline static is bound as GNU_UNIQUE unless the build forbids it.
#include <trainyard/schedule.hpp>

template <class T>
struct Shared {
  inline static int calls = 0;
};

class Counter final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("counter").version("1.0.0").summary("Counts its calls in a static.");
  }
  explicit Counter(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return ++Shared<int>::calls; }
};
TRAINYARD_PLUGIN(Counter)

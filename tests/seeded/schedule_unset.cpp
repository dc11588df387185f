// Caught by determinism.again: a member is never initialised.
#include <trainyard/schedule.hpp>

using namespace trainyard;

class Unset final : public Schedule {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("unset").version("1.0.0").summary("A plugin with a mistake.");
    m.needs("steps");
  }
  explicit Unset(const Options&) {}

  double factor(const SchedulePoint& at) const override { return at.step > 1 && fast_ > 64 ? 0.5 : 1.0; }

 private:
  unsigned char fast_;
};
TRAINYARD_PLUGIN(Unset)

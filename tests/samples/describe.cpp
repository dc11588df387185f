#include <stdexcept>
#include <trainyard/schedule.hpp>

class Wrong final : public trainyard::Schedule {
 public:
  struct Options {
    double rate = 2.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
#ifdef THROWS
    throw std::runtime_error("no licence file");
#endif
    m.name("Wrong Name").version("1").summary("");
    m.option("rate", &Options::rate, "a rate").range(0.0, 1.0);
    m.hook<&Wrong::observe>(trainyard::Event::batch_end).writes(trainyard::Region::grads);
  }
  explicit Wrong(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override {
    return 1.0;
  }
  void observe(trainyard::StepContext&) {}
};
TRAINYARD_PLUGIN(Wrong)

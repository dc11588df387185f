#include <stdexcept>
#include <trainyard/schedule.hpp>

class Throws final : public trainyard::Schedule {
 public:
  struct Options {
    std::string what;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("throws").version("1.0.0").summary("Throws in its constructor.");
    m.option("what", &Options::what, "data, foreign or other").required();
  }
  explicit Throws(const Options& options) {
    if (options.what == "data") throw trainyard::DataError("record 7 is bad");
    if (options.what == "foreign") throw std::out_of_range("index 3");
    throw 42;
  }
  double factor(const trainyard::SchedulePoint&) const override { return 1.0; }
};
TRAINYARD_PLUGIN(Throws)

// P17: a static with a constructor makes a second entry of the initialiser array.
#include <map>
#include <string>
#include <trainyard/schedule.hpp>

static const std::map<std::string, double> factors = {{"half", 0.5}};

class StaticMap final : public trainyard::Schedule {
 public:
  struct Options {};
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("static_map").version("1.0.0").summary("Keeps constants in a static map.");
  }
  explicit StaticMap(const Options&) {}
  double factor(const trainyard::SchedulePoint&) const override { return factors.at("half"); }
};
TRAINYARD_PLUGIN(StaticMap)

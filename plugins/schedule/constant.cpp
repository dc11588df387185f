#include <trainyard/schedule.hpp>

namespace {

using namespace trainyard;

class Constant final : public Schedule {
 public:
  struct Options {
    double value = 1.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("constant").version("1.0.0").summary("The same factor for the whole budget.");
    m.option("value", &Options::value, "the factor").min(0.0);
  }
  explicit Constant(const Options& options) : options_(options) {}
  double factor(const SchedulePoint&) const override { return options_.value; }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Constant)

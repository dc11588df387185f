// Chen, Wolfe and Kyrillidis, "REX: Revisiting Budgeted Training with an Improved Schedule", MLSys 2022
// (arXiv 2107.04197), section 4: (1 - p) / (1/2 + (1 - p)/2). Written with z = 1 - p as z / ((1 - beta) +
// beta z), of which beta = 0.5 is the paper and beta = 0 the line.
#include "shapes.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Rex final : public Schedule {
 public:
  struct Options {
    double beta = 0.5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("rex").version("1.0.0").summary("Reflected exponential: high for long, then a fast fall to 0.");
    m.needs("steps");
    m.option("beta", &Options::beta,
             "how long it stays high: 0.5 as published, 0 a line, 0.9 as in some other tools")
        .min(0.0)
        .below(1.0);
  }
  explicit Rex(const Options& options) : options_(options) {}
  double factor(const SchedulePoint& at) const override {
    const double left = share(at).left;
    return left / ((1.0 - options_.beta) + options_.beta * left);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Rex)

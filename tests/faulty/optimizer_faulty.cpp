// Goes wrong in its step: a plugin of a slot that a run needs, called by the loop itself.
#include <trainyard/optimizer.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

class FaultyOptimizer final : public Optimizer {
 public:
  struct Options {
    std::string way = "nothing";
    std::int64_t step = 3;
  };
  static void describe(Manifest<Options>& m) {
    m.name("faulty").version("1.0.0").summary("Goes wrong in a step.");
    m.option("way", &Options::way, "how it goes wrong").one_of(faulty::ways);
    m.option("step", &Options::step, "number of the step");
  }
  explicit FaultyOptimizer(const Options& options) : options_(options) {}
  void step() override {
    if (++steps_ == options_.step) faulty::go_wrong(options_.way);
  }

 private:
  Options options_;
  std::int64_t steps_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(FaultyOptimizer)

#include <trainyard/helpers/eager.hpp>

/// Data echoing: several updates with each batch, where data comes more slowly than it is trained on (Choi et
/// al., "Faster neural network training with data echoing", 2019).
class MyPlugin final : public trainyard::Eager {
 public:
  struct Options {
    std::int64_t times = 2;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Several updates with each batch (data echoing).");
    m.option("times", &Options::times, "updates with each batch").range(1, 1000);
    offer_all(m);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  void step(trainyard::Workbench& bench, trainyard::StepWork& work) override {
    for (std::int64_t i = 0; i < options_.times; ++i) Eager::step(bench, work);
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(MyPlugin)

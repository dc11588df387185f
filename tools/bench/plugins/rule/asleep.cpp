// A rule that sleeps at a step, and finds nothing: what a slow rule does to a run.
#include <chrono>
#include <thread>

#include <trainyard/rule.hpp>

namespace {

using namespace trainyard;

class Asleep final : public Rule {
 public:
  struct Options {
    std::int64_t at = 100;
    double seconds = 10.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("asleep").version("1.0.0").summary("Sleeps once; for benchmarks.");
    m.option("at", &Options::at, "step of the training at which it falls asleep");
    m.option("seconds", &Options::seconds, "for how long; 0: it stays awake").min(0.0);
  }
  explicit Asleep(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"losses"}}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    if (now.mode_step == options_.at)
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
    return std::nullopt;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Asleep)

// Takes its time, again and again.
#include <chrono>
#include <thread>

#include <trainyard/hook.hpp>

namespace {

using namespace trainyard;

class Dawdling final : public Hook {
 public:
  struct Options {
    std::int64_t steps = 50;
    double seconds = 0.05;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dawdling").version("1.0.0").summary("Sleeps in every so manieth step.");
    m.option("steps", &Options::steps, "from one sleep to the next").min(1);
    m.option("seconds", &Options::seconds, "how long").min(0.0);
    m.hook<&Dawdling::before_forward>(Event::before_forward);
  }
  explicit Dawdling(const Options& options) : options_(options) {}

  void before_forward(StepContext& context) {
    if (context.step_number() % options_.steps == 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Dawdling)

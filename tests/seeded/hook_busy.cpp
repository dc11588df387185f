// Caught by time.hooks: a hook takes longer than all the rest.
#include <chrono>
#include <thread>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Busy final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("busy").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Busy::called>(Event::batch_end);
  }
  explicit Busy(const Options&) {}

  void called(StepContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }
};
TRAINYARD_PLUGIN(Busy)

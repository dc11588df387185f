// Caught by life.thousand: a thread of its own is not joined.
#include <chrono>
#include <thread>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Threaded final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("threaded").version("1.0.0").summary("A plugin with a mistake.");
  }
  explicit Threaded(const Options&) {}

 private:
  std::thread thread_{[] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }};
};
TRAINYARD_PLUGIN(Threaded)

// Caught by static.exports: a function of its own is exported.
#include <trainyard/hook.hpp>

using namespace trainyard;

int calls = 0;
__attribute__((visibility("default"))) int helper(int more) {
  return calls += more;
}

class OpenDoor final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("open_door").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&OpenDoor::called>(Event::batch_end);
  }
  explicit OpenDoor(const Options&) {}

  void called(StepContext&) { helper(1); }
};
TRAINYARD_PLUGIN(OpenDoor)

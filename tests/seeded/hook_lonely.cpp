// Caught by static.libraries: a library that it needs is looked for beside the file, of which the host opens a copy.
#include <trainyard/hook.hpp>

using namespace trainyard;

extern "C" int seeded_helper();

class Lonely final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("lonely").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Lonely::called>(Event::batch_end);
  }
  explicit Lonely(const Options&) {}

  void called(StepContext&) { seeded_helper(); }
};
TRAINYARD_PLUGIN(Lonely)

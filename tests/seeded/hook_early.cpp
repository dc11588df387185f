// Caught by life.thousand: the host is asked in the constructor, which comes before there is one.
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>

using namespace trainyard;

class Early final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("early").version("1.0.0").summary("A plugin with a mistake.");
  }
  explicit Early(const Options&) { host().log(LogLevel::info, "here I am"); }
};
TRAINYARD_PLUGIN(Early)

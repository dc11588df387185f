// Caught by life.thousand: each object opens a file that nobody closes.
#include <cstdio>

#include <trainyard/hook.hpp>

using namespace trainyard;

class Hoarding final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("hoarding").version("1.0.0").summary("A plugin with a mistake.");
  }
  explicit Hoarding(const Options&) {}

 private:
  std::FILE* file_ = std::fopen("/dev/null", "r");
};
TRAINYARD_PLUGIN(Hoarding)

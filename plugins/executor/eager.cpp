// Every micro-batch forward and backward, then one update.
#include <trainyard/helpers/eager.hpp>

namespace {

using namespace trainyard;

class EagerExecutor final : public Eager {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("eager").version("1.0.0").summary("Every micro-batch forward and backward, then one update.");
    offer_all(m);
  }
  explicit EagerExecutor(const Options&) {}
};

}  // namespace

TRAINYARD_PLUGIN(EagerExecutor)

#include <ATen/ops/_fused_adam.h>

#include "adam.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

class Adam final : public AdamFamily {
 public:
  using Options = AdamOptions;
  static void describe(Manifest<Options>& m) {
    m.name("adam").version("1.0.0").summary(
        "Adam: steps scaled by running averages of the gradient and of its square.");
    m.provides("momentum");
    Options::describe(m);
  }
  explicit Adam(const Options& options) : AdamFamily(options, &at::_fused_adam_, false) {}
};

}  // namespace

TRAINYARD_PLUGIN(Adam)

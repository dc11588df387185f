#include <ATen/ops/_fused_adamw.h>

#include "adam.hpp"

namespace {

using namespace trainyard;
using namespace optimizers;

class AdamW final : public AdamFamily {
 public:
  using Options = AdamOptions;
  static void describe(Manifest<Options>& m) {
    m.name("adamw").version("1.0.0").summary("Adam with decoupled weight decay.");
    m.provides("momentum");
    Options::describe(m);
  }
  explicit AdamW(const Options& options) : AdamFamily(options, &at::_fused_adamw_, true) {}
};

}  // namespace

TRAINYARD_PLUGIN(AdamW)

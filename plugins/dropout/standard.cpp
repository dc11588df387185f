// Inverted dropout (Srivastava et al., JMLR 2014, section 4, scaled while training as in section 10): each
// element is kept with probability 1 - p and then multiplied by 1 / (1 - p), else 0.
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class Standard final : public Dropout {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("standard").version("1.0.0").summary("Elements are dropped independently of each other.");
  }
  explicit Standard(const Options&) {}

  void open(const DropoutPlaces&) override {}

  at::Tensor apply(const at::Tensor& x, std::size_t, const DropoutCall& call) override {
    return at::mul(x, masks_.inverted(x.sizes(), 1.0 - call.p, x, call.random));
  }

 private:
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(Standard)

// Inverted dropout (Srivastava et al., JMLR 2014, section 4, scaled while training as in section 10): each
// element is kept with probability 1 - p and then multiplied by 1 / (1 - p), else 0.
#include <optional>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

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
    return at::mul(x, x.is_cpu() ? mask_on_cpu(x, call) : mask_on_device(x, call));
  }

 private:
  static at::Tensor mask_on_cpu(const at::Tensor& x, const DropoutCall& call) {
    const at::Tensor mask = at::empty(x.sizes(), at::kFloat);
    call.random.fill_mask({mask.mutable_data_ptr<float>(), static_cast<std::size_t>(mask.numel())},
                          1.0 - call.p);
    return mask.to(x.scalar_type());
  }

  /// Drawn by the device's own generator, which differs from the CPU's: the stream gives its seed.
  at::Tensor mask_on_device(const at::Tensor& x, const DropoutCall& call) {
    if (!generator_ || generator_->device() != x.device())
      generator_ = at::globalContext()
                       .getAcceleratorHooksInterface(x.device().type())
                       .getNewGenerator(x.device().index());
    generator_->set_current_seed(call.random.seed());
    const double keep = 1.0 - call.p;
    return at::empty(x.sizes(), x.options().requires_grad(false)).bernoulli_(keep, generator_).div_(keep);
  }

  std::optional<at::Generator> generator_;
};

}  // namespace

TRAINYARD_PLUGIN(Standard)

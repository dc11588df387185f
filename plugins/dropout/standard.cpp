// Inverted dropout (Srivastava et al., JMLR 2014, section 4, scaled while training as in section 10): each
// element is kept with probability 1 - p and then multiplied by 1 / (1 - p), else 0.
#include <optional>
#include <span>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

namespace {

using namespace trainyard;

class Standard final : public Dropout {
 public:
  struct Options {
    double p = 0.5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("standard").version("1.0.0").summary("Elements are dropped independently of each other.");
    m.option("p", &Options::p, "probability that an element is dropped").min(0.0).below(1.0);
  }
  explicit Standard(const Options& options) : options_(options) {}

  void open(std::span<const DropoutSite>) override {}

  at::Tensor apply(const at::Tensor& x, std::size_t, const RandomStream& random) override {
    if (options_.p == 0.0) return x;
    return at::mul(x, x.is_cpu() ? mask_on_cpu(x, random) : mask_on_device(x, random));
  }

 private:
  at::Tensor mask_on_cpu(const at::Tensor& x, const RandomStream& random) const {
    const at::Tensor mask = at::empty(x.sizes(), at::kFloat);
    random.fill_mask({mask.mutable_data_ptr<float>(), static_cast<std::size_t>(mask.numel())},
                     1.0 - options_.p);
    return mask.to(x.scalar_type());
  }

  /// Drawn by the device's own generator, which differs from the CPU's: the stream gives its seed.
  at::Tensor mask_on_device(const at::Tensor& x, const RandomStream& random) {
    if (!generator_ || generator_->device() != x.device())
      generator_ = at::globalContext()
                       .getAcceleratorHooksInterface(x.device().type())
                       .getNewGenerator(x.device().index());
    generator_->set_current_seed(random.seed());
    const double keep = 1.0 - options_.p;
    return at::empty(x.sizes(), x.options().requires_grad(false)).bernoulli_(keep, generator_).div_(keep);
  }

  Options options_;
  std::optional<at::Generator> generator_;
};

}  // namespace

TRAINYARD_PLUGIN(Standard)

#include <cmath>

#include <trainyard/dropout.hpp>
#include <trainyard/helpers/dropout_masks.hpp>

/// Gaussian dropout: times N(1, p / (1 - p)), which has the variance of dropout with the probability p
/// (Srivastava et al., JMLR 2014, section 10).
class MyPlugin final : public trainyard::Dropout {
 public:
  struct Options {
    double strength = 1.0;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("Multiplies by normal noise around 1.");
    m.option("strength", &Options::strength, "factor on the noise").range(0.0, 10.0);
  }
  explicit MyPlugin(const Options& options) : options_(options) {}

  void open(const trainyard::DropoutPlaces&) override {}
  at::Tensor apply(const at::Tensor& x, std::size_t, const trainyard::DropoutCall& call) override {
    const double deviation = options_.strength * std::sqrt(call.p / (1.0 - call.p));
    return x.mul(masks_.normal(x.sizes(), x, call.random).mul_(deviation).add_(1.0).to(x.scalar_type()));
  }

 private:
  Options options_;
  trainyard::DropoutMasks masks_;
};
TRAINYARD_PLUGIN(MyPlugin)

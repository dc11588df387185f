// Alpha dropout (Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017, section 3): what is
// dropped takes the value that SELU saturates at, and the result is scaled and shifted such that mean 0 and
// variance 1 stay: y = a (x m + alpha' (1 - m)) + b, m = 1 with probability 1 - p,
// a = ((1 - p)(1 + p alpha'^2))^-1/2, b = -a p alpha'. For networks with SELU (activation = "selu").
#include <cmath>

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class Alpha final : public Dropout {
 public:
  struct Options {
    bool feature = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("alpha").version("1.0.0").summary("Keeps mean and variance of self-normalising networks.");
    m.common_default("p", 0.1);
    m.option("feature", &Options::feature,
             "whole channels of a sample are dropped, as torch.nn.FeatureAlphaDropout does");
  }
  explicit Alpha(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    for (const DropoutSite& site : places.sites) axes_.push_back(site.axis);
  }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    constexpr double saturation = -1.7580993408473766;  // alpha': -lambda alpha of SELU
    const double p = call.p, a = 1.0 / std::sqrt((1.0 - p) * (1.0 + p * saturation * saturation)),
                 b = -a * p * saturation;
    const at::Tensor mask = masks_.kept(
        options_.feature ? shared_over_positions(x, axes_[site]) : x.sizes().vec(), 1.0 - p, x, call.random);
    // Of the mask alone, so that x is read once: a alpha' (1 - m) + b.
    const at::Tensor shift = at::add(at::mul(mask, -a * saturation), a * saturation + b);
    return at::add(at::mul(x, at::mul(mask, a)), shift);
  }

 private:
  Options options_;
  std::vector<std::int64_t> axes_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(Alpha)

// Spatial dropout (Tompson et al., "Efficient object localization using convolutional networks", CVPR 2015,
// section 3.2), as torch.nn.Dropout1d, 2d and 3d: one bit for each sample and channel, so that neighbours,
// which hold nearly the same, are dropped together; scaled by 1 / (1 - p).
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class Spatial final : public Dropout {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("spatial").version("1.0.0").summary("Whole channels of a sample are dropped.");
  }
  explicit Spatial(const Options&) {}

  void open(const DropoutPlaces& places) override {
    for (const DropoutSite& site : places.sites) {
      if (site.active && site.rank < 3)
        throw ConfigError("model.dropout: at \"" + site.id +
                          "\" a channel is a single number; name sites that have positions in "
                          "model.dropout.sites, or take type = \"standard\"");
      axes_.push_back(site.axis);
    }
  }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    return at::mul(x, masks_.inverted(shared_over_positions(x, axes_[site]), 1.0 - call.p, x, call.random));
  }

 private:
  std::vector<std::int64_t> axes_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(Spatial)

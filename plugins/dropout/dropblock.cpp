// DropBlock (Ghiasi et al., "DropBlock: A regularization method for convolutional networks", NeurIPS 2018,
// algorithm 1): squares of `block` x `block` pixels of a channel are dropped. Their seeds, drawn where a
// whole square fits, have the rate gamma = p H W / (b^2 (H - b + 1)(W - b + 1)) (equation 1), such that about
// p of the pixels are dropped; what is left is scaled to the same sum of the mask. The paper lets p rise:
// ramp = "linear".
#include <algorithm>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class DropBlock final : public Dropout {
 public:
  struct Options {
    std::int64_t block = 7;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dropblock").version("1.0.0").summary("Squares of pixels of a channel are dropped.");
    m.common_default("p", 0.1);
    m.option("block", &Options::block, "side of a square in pixels; at most that of the image at a site")
        .min(1);
  }
  explicit DropBlock(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    for (const DropoutSite& site : places.sites)
      if (site.active && (site.rank != 4 || site.axis != 1))
        throw ConfigError("model.dropout: \"" + site.id +
                          "\" has no images [batch, channels, height, width], whose pixels dropblock drops; "
                          "name sites that have in model.dropout.sites");
  }

  at::Tensor apply(const at::Tensor& x, std::size_t, const DropoutCall& call) override {
    const std::int64_t height = x.size(2), width = x.size(3);
    const std::int64_t block = std::min({options_.block, height, width});
    const std::int64_t rows = height - block + 1, columns = width - block + 1;  // where a square may begin
    const double gamma =
        call.p * static_cast<double>(height * width) / static_cast<double>(block * block * rows * columns);
    const at::Tensor seeds =
        masks_.kept({x.size(0), x.size(1), rows, columns}, 1.0 - gamma, x, call.random).neg_().add_(1);
    const std::int64_t edge = block - 1;
    const at::Tensor kept =
        at::max_pool2d(at::constant_pad_nd(seeds, {edge, edge, edge, edge}), {block, block}, {1, 1})
            .neg_()
            .add_(1);
    // Counted in float: half precision holds no integers beyond 2048.
    const at::Tensor sum = kept.sum(at::promote_types(kept.scalar_type(), at::kFloat)).clamp_min_(1);
    return at::mul(x, at::mul(kept, sum.reciprocal_().mul_(static_cast<double>(kept.numel()))));
  }

 private:
  Options options_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(DropBlock)

// Drop path, or stochastic depth (Huang et al., "Deep networks with stochastic depth", ECCV 2016, section 3;
// drawn for each sample as in Larsson et al., "FractalNet", ICLR 2017): a sample skips a whole residual
// branch, and what is kept is scaled by 1 / (1 - p). For sites at the end of such branches. With rule =
// "linear" (equation 4 of the paper, from the first branch on) site l of L has p l / (L - 1).
#include <ATen/ops/mul.h>

#include <trainyard/dropout.hpp>

#include <trainyard/helpers/dropout_masks.hpp>

namespace {

using namespace trainyard;

class DropPath final : public Dropout {
 public:
  struct Options {
    std::string rule = "linear";
    std::string mode = "row";
  };
  static void describe(Manifest<Options>& m) {
    m.name("droppath").version("1.0.0").summary("Residual branches are skipped (stochastic depth).");
    m.common_default("p", 0.1);
    m.option("rule", &Options::rule, "linear: from 0 at the first of its sites to p at the last; constant: p")
        .one_of({"linear", "constant"});
    m.option("mode", &Options::mode, "what skips a branch: a sample by itself (row), or the whole batch")
        .one_of({"row", "batch"});
  }
  explicit DropPath(const Options& options) : options_(options) {}

  void open(const DropoutPlaces& places) override {
    double last = -1.0;
    for (const DropoutSite& site : places.sites) last += site.active;
    double number = 0.0;
    for (const DropoutSite& site : places.sites) {
      const bool linear = options_.rule == "linear" && last > 0.0;
      sites_.push_back({site.rows, linear ? number / last : 1.0});
      number += site.active;
    }
  }

  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    const auto [rows, share] = sites_[site];
    const double p = call.p * share;
    if (p == 0.0) return x;
    const at::Tensor samples = by_sample(x, rows);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(samples.dim()), 1);
    if (options_.mode == "row") shape.front() = samples.size(0);
    return at::mul(samples, masks_.inverted(shape, 1.0 - p, x, call.random)).flatten(0, 1);
  }

 private:
  struct Site {
    std::int64_t rows;
    double share;  ///< of p
  };

  Options options_;
  std::vector<Site> sites_;
  DropoutMasks masks_;
};

}  // namespace

TRAINYARD_PLUGIN(DropPath)

// The share of the k largest scores that are labels of the sample, averaged over samples.
#include "ranked.hpp"

namespace {

using namespace trainyard;

class PrecisionAtK final : public metrics::Ranked {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("precision_at_k")
        .version("1.0.0")
        .summary("Share of the k largest scores that are labels of the sample, of one or several.");
    Options::describe(m);
  }
  explicit PrecisionAtK(const Options& options) : Ranked(options, "p") {}

 private:
  at::Tensor discount(const at::Tensor& rank) const override { return at::ones_like(rank); }
  at::Tensor value(const at::Tensor& found, const at::Tensor&, const at::Tensor& k) const override {
    return found.div(k);
  }
};

}  // namespace

TRAINYARD_PLUGIN(PrecisionAtK)

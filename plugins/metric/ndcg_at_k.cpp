// Normalised discounted cumulative gain (Jarvelin and Kekalainen, TOIS 2002): a label found at rank r counts
// 1 / log2(r + 1), and the sum is divided by that of a sample whose labels are all in front.
#include "ranked.hpp"

namespace {

using namespace trainyard;

class NdcgAtK final : public metrics::Ranked {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("ndcg_at_k")
        .version("1.0.0")
        .summary(
            "How far in front the labels of a sample are among its k largest scores, of one or several.");
    Options::describe(m);
  }
  explicit NdcgAtK(const Options& options) : Ranked(options, "ndcg") {}

 private:
  at::Tensor discount(const at::Tensor& rank) const override { return rank.add(1.0).log2().reciprocal(); }
  at::Tensor value(const at::Tensor& found, const at::Tensor& best, const at::Tensor&) const override {
    return found.div(best.clamp_min(std::numeric_limits<double>::min()));
  }
};

}  // namespace

TRAINYARD_PLUGIN(NdcgAtK)
